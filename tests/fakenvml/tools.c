/* Processes, and the rest that other tools ask for before they show anything. */
#include "entry.h"

/* -- processes ----------------------------------------------------------- */

struct process_v1 {
    unsigned pid;
    unsigned long long memory;
};

struct process_v2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static int give_processes(const struct fake_gpu *gpu, uint32_t graphics, unsigned *room, void *out, size_t step)
{
    uint32_t found = 0;

    for (uint32_t at = 0; at < fake->process_count; at++) {
        const struct fake_process *process = &fake->processes[at];
        if (process->gpu != fake_slot_of(gpu) || process->graphics != graphics)
            continue;
        if (out && found < *room) {
            struct process_v2 whole = {process->pid, process->memory_bytes, 0xffffffff, 0xffffffff};
            memcpy((char *)out + found * step, &whole, step);
        }
        found++;
    }
    if (found > *room || (found && !out)) {
        *room = found;
        return NVML_INSUFFICIENT_SIZE;
    }
    *room = found;
    return NVML_SUCCESS;
}

#define PROCESSES(name, graphics, type) \
    EXPORT int name(fake_handle handle, unsigned *room, type *out) \
    { \
        ENTER_GPU(name); \
        return give_processes(gpu, graphics, room, out, sizeof *out); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, 0, struct process_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0, struct process_v2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0, struct process_v2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 1, struct process_v1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, struct process_v2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, struct process_v2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2, struct process_v2)

struct process_use {
    unsigned pid;
    unsigned long long stamp_us;
    unsigned sm, memory, encoder, decoder;
};

EXPORT int nvmlDeviceGetProcessUtilization(fake_handle handle, struct process_use *out, unsigned *count,
                                           unsigned long long last_seen_us)
{
    uint64_t stamp = (uint64_t)((int64_t)(fake_now_ns() / 1000) + fake->stamp_offset_us);
    uint32_t found = 0;
    ENTER_GPU(nvmlDeviceGetProcessUtilization);
    for (uint32_t at = 0; at < fake->process_count; at++) {
        const struct fake_process *process = &fake->processes[at];
        if (process->gpu != fake_slot_of(gpu) || !process->sm_percent || stamp <= last_seen_us)
            continue;
        if (out && found < *count)
            out[found] = (struct process_use){process->pid, stamp, process->sm_percent, 10, 0, 0};
        found++;
    }
    if (found == 0)
        return NVML_NOT_FOUND;
    if (!out || found > *count) {
        *count = out ? found : 100; /* the size question answers the capacity */
        return NVML_INSUFFICIENT_SIZE;
    }
    *count = found;
    return NVML_SUCCESS;
}

/* -- the rest that tools ask for ------------------------------------------ */

#define TWO_NUMBERS(name, first, second) \
    EXPORT int name(fake_handle handle, unsigned *one, unsigned *two) \
    { \
        ENTER_GPU(name); \
        (void)gpu; \
        *one = (first); \
        *two = (second); \
        return NVML_SUCCESS; \
    }
TWO_NUMBERS(nvmlDeviceGetMigMode, gpu->mig_enabled, gpu->mig_enabled)
TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, 0, 166667)
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, 0, 166667)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, 9, 0)

NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned, fake_part_of(handle) != NULL)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, gpu->mig_enabled ? FAKE_MAX_PARTS : 0)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 0)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, 0)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, 0)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0)

#define REFUSED(name, ...) \
    EXPORT int name(fake_handle handle, __VA_ARGS__) \
    { \
        ENTER_GPU(name); \
        (void)gpu; \
        return NVML_NOT_SUPPORTED; \
    }
REFUSED(nvmlDeviceGetDriverModel, unsigned *current, unsigned *pending)
REFUSED(nvmlDeviceGetDriverModel_v2, unsigned *current, unsigned *pending)

/* -- the parts of a GPU that MIG has cut ----------------------------------- */

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(fake_handle handle, unsigned index, fake_handle *out)
{
    ENTER_GPU(nvmlDeviceGetMigDeviceHandleByIndex);
    if (!gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    if (index >= gpu->part_count)
        return NVML_NOT_FOUND;
    *out = fake_handle_of_part(fake_slot_of(gpu), index);
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

EXPORT int nvmlDeviceGetTotalEccErrors(fake_handle handle, unsigned kind, unsigned counter, unsigned long long *out)
{
    ENTER_GPU(nvmlDeviceGetTotalEccErrors);
    (void)gpu;
    (void)kind;
    (void)counter;
    *out = 0;
    return NVML_SUCCESS;
}

struct field_value {
    uint32_t field, scope;
    int64_t stamp, latency_us;
    uint32_t value_type, code;
    uint64_t raw;
};

EXPORT int nvmlDeviceGetFieldValues(fake_handle handle, int count, struct field_value *fields)
{
    ENTER_GPU(nvmlDeviceGetFieldValues);
    (void)gpu;
    for (int at = 0; at < count; at++)
        fields[at].code = NVML_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
