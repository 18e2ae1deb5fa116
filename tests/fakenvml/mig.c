/* The parts of a GPU that MIG has cut. */
#include "entry.h"

TWO_NUMBERS(nvmlDeviceGetMigMode, gpu->mig_enabled,
            gpu->mig_pending == FAKE_NO_OVERRIDE ? gpu->mig_enabled : gpu->mig_pending)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, gpu->mig_enabled ? FAKE_MAX_PARTS : 0)

EXPORT int nvmlDeviceIsMigDeviceHandle(fake_handle handle, unsigned *out)
{
    ENTER_GPU(nvmlDeviceIsMigDeviceHandle);
    (void)gpu;
    *out = fake_part_of(handle) != NULL;
    return NVML_SUCCESS;
}

/* Where an instance was destroyed, its index stays empty until another takes it. */
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(fake_handle handle, unsigned index, fake_handle *out)
{
    ENTER_WHOLE_GPU(nvmlDeviceGetMigDeviceHandleByIndex);
    if (!gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    if (index >= FAKE_MAX_PARTS)
        return NVML_INVALID_ARGUMENT;
    if (!gpu->parts[index].exists)
        return NVML_NOT_FOUND;
    *out = fake_handle_of_part(fake_slot_of(gpu), index);
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(fake_handle handle, fake_handle *out)
{
    ENTER_GPU(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (!fake_part_of(handle))
        return NVML_INVALID_ARGUMENT;
    *out = fake_handle_of(fake_slot_of(gpu));
    return NVML_SUCCESS;
}

#define PART_NUMBER(name, member) \
    EXPORT int name(fake_handle handle, unsigned *out) \
    { \
        ENTER_GPU(name); \
        (void)gpu; \
        if (!fake_part_of(handle)) \
            return NVML_INVALID_ARGUMENT; \
        *out = fake_part_of(handle)->member; \
        return NVML_SUCCESS; \
    }
PART_NUMBER(nvmlDeviceGetGpuInstanceId, gpu_instance)
PART_NUMBER(nvmlDeviceGetComputeInstanceId, compute_instance)

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg_engines, optical_flow_engines;
    unsigned gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

EXPORT int nvmlDeviceGetAttributes_v2(fake_handle handle, struct attributes *out)
{
    const struct fake_part *part;
    ENTER_GPU(nvmlDeviceGetAttributes_v2);
    (void)gpu;
    part = fake_part_of(handle);
    if (!part)
        return NVML_NOT_SUPPORTED; /* only MIG devices have them */
    *out = (struct attributes){.multiprocessors = part->multiprocessors, .copy_engines = part->gpu_slices,
                               .gpu_slices = part->gpu_slices, .compute_slices = part->compute_slices,
                               .memory_mib = part->memory_total >> 20};
    return NVML_SUCCESS;
}
