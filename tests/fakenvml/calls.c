/* Init, and which GPUs there are.
 * Signatures follow NVML's documented C interface. */
#include <stdio.h>

#include "entry.h"

EXPORT int nvmlInit(void) { return fake_open(FAKE_ID_nvmlInit); }
EXPORT int nvmlInit_v2(void) { return fake_open(FAKE_ID_nvmlInit_v2); }

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return fake_open(FAKE_ID_nvmlInitWithFlags);
}

EXPORT int nvmlShutdown(void)
{
    if (fake)
        __atomic_add_fetch(&fake->functions[FAKE_ID_nvmlShutdown].calls, 1, __ATOMIC_RELAXED);
    return fake_close();
}

EXPORT const char *nvmlErrorString(int code)
{
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned room)
{
    ENTER(nvmlSystemGetDriverVersion);
    return give_text(fake->driver_version, out, room);
}

EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned room)
{
    ENTER(nvmlSystemGetNVMLVersion);
    return give_text(fake->nvml_version, out, room);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *out)
{
    ENTER(nvmlSystemGetCudaDriverVersion);
    *out = (int)fake->cuda_version;
    return NVML_SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    ENTER(nvmlSystemGetCudaDriverVersion_v2);
    *out = (int)fake->cuda_version;
    return NVML_SUCCESS;
}

/* -- finding a GPU ------------------------------------------------------- */

static int handle_of_index(unsigned index, fake_handle *out)
{
    if (index >= fake->gpu_count)
        return NVML_INVALID_ARGUMENT;
    *out = fake_handle_of(fake->slot_of_index[index]);
    return NVML_SUCCESS;
}

/* A bus id is known by its end: tools write the domain with four digits or eight. */
static int handle_of_text(const char *wanted, int by_bus, fake_handle *out)
{
    for (uint32_t index = 0; index < fake->gpu_count; index++) {
        uint32_t slot = fake->slot_of_index[index];
        const char *known = by_bus ? fake->gpus[slot].bus_id : fake->gpus[slot].uuid;
        size_t shorter = strlen(known) < strlen(wanted) ? strlen(known) : strlen(wanted);
        size_t compared = by_bus ? shorter : strlen(known) + 1;
        if (by_bus ? !strcmp(known + strlen(known) - compared, wanted + strlen(wanted) - compared)
                   : !strcmp(known, wanted)) {
            *out = fake_handle_of(slot);
            return fake->gpus[slot].error;
        }
        for (uint32_t part = 0; !by_bus && part < FAKE_MAX_PARTS; part++)
            if (fake->gpus[slot].parts[part].exists && !strcmp(fake->gpus[slot].parts[part].uuid, wanted)) {
                *out = fake_handle_of_part(slot, part);
                return fake->gpus[slot].error;
            }
    }
    return NVML_NOT_FOUND;
}

#define COUNT(name) \
    EXPORT int name(unsigned *out) \
    { \
        ENTER(name); \
        *out = fake->gpu_count; \
        return NVML_SUCCESS; \
    }
COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)

/* A lost GPU keeps its index: asking for its handle answers with its error. */
#define BY_INDEX(name) \
    EXPORT int name(unsigned index, fake_handle *out) \
    { \
        struct fake_gpu *gpu; \
        int error; \
        ENTER(name); \
        if ((error = handle_of_index(index, out))) \
            return error; \
        gpu = &fake->gpus[fake->slot_of_index[index]]; \
        return gpu->error ? gpu->error : fake->functions[FAKE_ID_##name].gpu_error[fake_slot_of(gpu)]; \
    }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

#define BY_TEXT(name, by_bus) \
    EXPORT int name(const char *wanted, fake_handle *out) \
    { \
        ENTER(name); \
        return handle_of_text(wanted, by_bus, out); \
    }
BY_TEXT(nvmlDeviceGetHandleByUUID, 0)
BY_TEXT(nvmlDeviceGetHandleByPciBusId, 1)
BY_TEXT(nvmlDeviceGetHandleByPciBusId_v2, 1)

EXPORT int nvmlDeviceGetIndex(fake_handle handle, unsigned *out)
{
    ENTER_GPU(nvmlDeviceGetIndex);
    for (uint32_t index = 0; index < fake->gpu_count; index++)
        if (fake->slot_of_index[index] == fake_slot_of(gpu)) {
            *out = index;
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

NUMBER(nvmlDeviceGetMinorNumber, unsigned, fake_slot_of(gpu))

EXPORT int nvmlDeviceGetName(fake_handle handle, char *out, unsigned room)
{
    ENTER_GPU(nvmlDeviceGetName);
    return give_text(fake_part_of(handle) ? fake_part_of(handle)->name : gpu->name, out, room);
}

EXPORT int nvmlDeviceGetUUID(fake_handle handle, char *out, unsigned room)
{
    ENTER_GPU(nvmlDeviceGetUUID);
    return give_text(fake_part_of(handle) ? fake_part_of(handle)->uuid : gpu->uuid, out, room);
}

EXPORT int nvmlDeviceGetSerial(fake_handle handle, char *out, unsigned room)
{
    char serial[32];
    ENTER_GPU(nvmlDeviceGetSerial);
    snprintf(serial, sizeof serial, "%010u", 1000 + fake_slot_of(gpu));
    return give_text(serial, out, room);
}

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

#define PCI_INFO(function) \
    EXPORT int function(fake_handle handle, struct pci_info *out) \
    { \
        ENTER_GPU(function); \
        memset(out, 0, sizeof *out); \
        sscanf(gpu->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device); \
        snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04x:%02x:%02x.0", out->domain & 0xffff, \
                 out->bus & 0xff, out->device & 0xff); \
        return give_text(gpu->bus_id, out->bus_id, sizeof out->bus_id); \
    }
PCI_INFO(nvmlDeviceGetPciInfo)
PCI_INFO(nvmlDeviceGetPciInfo_v3)
