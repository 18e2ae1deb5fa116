/* Handles: a GPU's slot, its part if any, and what makes an old handle void.
 *
 *   bits 0-7 slot + 1 | 8-15 part + 1, 0: the whole GPU | 16-31 the part's serial
 *   | 32-47 the GPU's epoch | 48-63 the driver's generation + 1 */
#include "fake.h"

static uint64_t void_when_changed(uint32_t slot)
{
    return (uint64_t)(fake->generation + 1) << 48 | (uint64_t)(fake->gpus[slot].handle_epoch & 0xffff) << 32;
}

fake_handle fake_handle_of(uint32_t slot)
{
    return (fake_handle)(uintptr_t)(void_when_changed(slot) | (slot + 1));
}

fake_handle fake_handle_of_part(uint32_t slot, uint32_t part)
{
    uint64_t serial = fake->gpus[slot].parts[part].serial & 0xffff;

    return (fake_handle)(uintptr_t)(void_when_changed(slot) | serial << 16 | (part + 1) << 8 | (slot + 1));
}

const struct fake_part *fake_part_of(fake_handle handle)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t part = (uint32_t)(number >> 8 & 0xff);

    return part ? &fake->gpus[(number & 0xff) - 1].parts[part - 1] : NULL;
}

uint32_t fake_slot_of(const struct fake_gpu *gpu)
{
    return (uint32_t)(gpu - fake->gpus);
}

int fake_find(fake_handle handle, struct fake_gpu **gpu)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t slot = (uint32_t)(number & 0xff) - 1, part = (uint32_t)(number >> 8 & 0xff);

    if (slot >= FAKE_MAX_GPUS || part > FAKE_MAX_PARTS)
        return NVML_INVALID_ARGUMENT;
    if (handle != (part ? fake_handle_of_part(slot, part - 1) : fake_handle_of(slot)))
        return NVML_INVALID_ARGUMENT;
    *gpu = &fake->gpus[slot];
    if (part && !(*gpu)->parts[part - 1].exists)
        return NVML_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}
