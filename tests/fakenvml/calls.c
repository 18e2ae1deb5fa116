/* Init, the inventory, memory, utilisation, power: what gpumon asks.
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

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned room)
{
    ENTER(nvmlSystemGetProcessName);
    for (uint32_t at = 0; at < fake->process_count; at++)
        if (fake->processes[at].pid == pid)
            return give_text(fake->processes[at].name, out, room);
    return NVML_NOT_FOUND;
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
            return NVML_SUCCESS;
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

/* -- memory, utilisation, power ------------------------------------------ */

EXPORT int nvmlDeviceGetMemoryInfo(fake_handle handle, unsigned long long out[3])
{
    ENTER_GPU(nvmlDeviceGetMemoryInfo);
    out[0] = fake_part_of(handle) ? fake_part_of(handle)->memory_total : gpu->memory_total;
    /* The first version counts both; of a part, nothing is in use here. */
    out[2] = fake_part_of(handle) ? 0 : gpu->memory_used + gpu->memory_reserved;
    out[1] = out[0] - out[2];
    return NVML_SUCCESS;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(fake_handle handle, struct memory_v2 *out)
{
    ENTER_GPU(nvmlDeviceGetMemoryInfo_v2);
    out->total = gpu->memory_total;
    out->reserved = gpu->memory_reserved;
    out->used = gpu->memory_used;
    out->free = out->total - out->reserved - out->used;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(fake_handle handle, unsigned long long out[3])
{
    ENTER_GPU(nvmlDeviceGetBAR1MemoryInfo);
    (void)gpu;
    out[0] = 256ULL << 20;
    out[2] = 4ULL << 20;
    out[1] = out[0] - out[2];
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(fake_handle handle, unsigned out[2])
{
    ENTER_GPU(nvmlDeviceGetUtilizationRates);
    if (gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    out[0] = fake_percent(gpu);
    out[1] = out[0] / 2;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetSamples(fake_handle handle, int kind, unsigned long long last_seen_us, int *value_type,
                                unsigned *count, struct fake_entry *out)
{
    uint32_t found;
    ENTER_GPU(nvmlDeviceGetSamples);
    if (gpu->mig_enabled || kind != 1)
        return NVML_NOT_SUPPORTED;
    *value_type = (int)gpu->value_type;
    found = fake_entries_since(gpu, last_seen_us, out, out ? *count : FAKE_MAX_RING);
    *count = found;
    return found ? NVML_SUCCESS : NVML_NOT_FOUND;
}

NUMBER(nvmlDeviceGetPowerUsage, unsigned, gpu->power_mw)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long,
       gpu->energy_mj + (unsigned long long)((double)(fake_now_ns() - fake->origin_ns) * 1e-9 * gpu->power_mw))
NUMBER(nvmlDeviceGetFanSpeed, unsigned, 30)
NUMBER_OF_KIND(nvmlDeviceGetTemperature, unsigned, gpu->temperature_c)
NUMBER_OF_KIND(nvmlDeviceGetClockInfo, unsigned, kind == 2 ? gpu->mem_clock_mhz : gpu->sm_clock_mhz)
NUMBER_OF_KIND(nvmlDeviceGetMaxClockInfo, unsigned, kind == 2 ? 3201 : 1980)
NUMBER_OF_KIND(nvmlDeviceGetPcieThroughput, unsigned, 1024 * (kind + 1))

EXPORT int nvmlDeviceGetTemperatureV(fake_handle handle, int out[3])
{
    ENTER_GPU(nvmlDeviceGetTemperatureV);
    out[2] = (int)gpu->temperature_c;
    return NVML_SUCCESS;
}
