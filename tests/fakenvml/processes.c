/* Who holds memory on a GPU, and how much of it each has used. */
#include "entry.h"

#define CAPACITY 100 /* what the size question answers, however few there are */

static int is_gone(const struct fake_process *process)
{
    return process->computes_until_ns && process->computes_until_ns <= fake_now_ns();
}

static int is_on(const struct fake_process *process, const struct fake_gpu *gpu, const struct fake_part *part)
{
    if (process->gpu != fake_slot_of(gpu))
        return 0;
    return !part || (process->gpu_instance == part->gpu_instance && process->compute_instance == part->compute_instance);
}

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned room)
{
    ENTER(nvmlSystemGetProcessName);
    for (uint32_t at = 0; at < fake->process_count; at++)
        if (fake->processes[at].pid == pid && !is_gone(&fake->processes[at]))
            return give_text(fake->processes[at].name, out, room);
    return NVML_NOT_FOUND;
}

/* -- the lists ------------------------------------------------------------- */

struct process_v1 {
    unsigned pid;
    unsigned long long memory;
};

struct process_v2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct process_detail {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_memory;
};

static int give_processes(const struct fake_gpu *gpu, const struct fake_part *part, uint32_t graphics, unsigned *room,
                          void *out, size_t step)
{
    uint32_t found = 0;

    for (uint32_t at = 0; at < fake->process_count; at++) {
        const struct fake_process *process = &fake->processes[at];
        if (!is_on(process, gpu, part) || process->graphics != graphics || is_gone(process))
            continue;
        if (out && found < *room) {
            struct process_detail whole = {process->pid, process->memory_bytes, process->gpu_instance,
                                           process->compute_instance, 0};
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

#define SIZE_V1 sizeof(struct process_v1)
#define SIZE_V2 sizeof(struct process_v2)
#define SIZE_V3 (fake->wide_processes ? sizeof(struct process_detail) : SIZE_V2)
#define PROCESSES(name, graphics, size) \
    EXPORT int name(fake_handle handle, unsigned *room, void *out) \
    { \
        ENTER_GPU(name); \
        return give_processes(gpu, fake_part_of(handle), graphics, room, out, size); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, 0, SIZE_V1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0, SIZE_V2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0, SIZE_V3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 1, SIZE_V1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, SIZE_V2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, SIZE_V3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2, SIZE_V3)

struct process_details {
    unsigned version, graphics, count;
    struct process_detail *out;
};

EXPORT int nvmlDeviceGetRunningProcessDetailList(fake_handle handle, struct process_details *asked)
{
    ENTER_GPU(nvmlDeviceGetRunningProcessDetailList);
    if (asked->version != (1U << 24 | sizeof *asked))
        return NVML_VERSION_OF_ARGUMENT;
    return give_processes(gpu, fake_part_of(handle), asked->graphics, &asked->count, asked->out, sizeof *asked->out);
}

/* -- what each has used ------------------------------------------------------ */

struct process_use {
    unsigned pid;
    unsigned long long stamp_us;
    unsigned sm, memory, encoder, decoder;
};

struct process_use_info {
    unsigned long long stamp_us;
    unsigned pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};

/* The average since `last_seen_us`, or over all that the driver keeps: also of who is gone. */
static int use_of(const struct fake_process *process, uint64_t last_seen_us, struct process_use *out)
{
    uint64_t now_ns = fake_now_ns(), kept_ns = fake->process_buffer_ns;
    uint64_t start_ns = now_ns > kept_ns ? now_ns - kept_ns : 0, end_ns = now_ns, from_ns, until_ns;
    int64_t seen_ns = ((int64_t)last_seen_us - fake->stamp_offset_us) * 1000;
    double share;

    if (process->use_stamp_us) {
        *out = (struct process_use){process->pid, process->use_stamp_us, process->sm_percent, process->memory_percent,
                                    process->encoder_percent, process->decoder_percent};
        return 1;
    }
    if (seen_ns > (int64_t)start_ns)
        start_ns = (uint64_t)seen_ns;
    from_ns = process->computes_from_ns > start_ns ? process->computes_from_ns : start_ns;
    until_ns = process->computes_until_ns && process->computes_until_ns < end_ns ? process->computes_until_ns : end_ns;
    if (until_ns <= from_ns || !process->sm_percent)
        return 0;
    share = (double)(until_ns - from_ns) / (double)(end_ns - start_ns);
    *out = (struct process_use){process->pid, fake_stamp_us(until_ns), (unsigned)(process->sm_percent * share + 0.5),
                                (unsigned)(process->memory_percent * share + 0.5), process->encoder_percent,
                                process->decoder_percent};
    return out->sm > 0;
}

static uint32_t uses_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct process_use out[FAKE_MAX_PROCESSES])
{
    uint32_t found = 0;

    for (uint32_t at = 0; at < fake->process_count; at++)
        if (is_on(&fake->processes[at], gpu, NULL) && use_of(&fake->processes[at], last_seen_us, &out[found]))
            found++;
    return found;
}

EXPORT int nvmlDeviceGetProcessUtilization(fake_handle handle, struct process_use *out, unsigned *count,
                                           unsigned long long last_seen_us)
{
    struct process_use all[FAKE_MAX_PROCESSES];
    uint32_t found;
    ENTER_WHOLE_GPU(nvmlDeviceGetProcessUtilization);
    if (gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    if (!out) {
        *count = CAPACITY;
        return fake->process_size_error;
    }
    found = uses_since(gpu, last_seen_us, all);
    if (found == 0)
        return NVML_NOT_FOUND;
    if (found > *count) {
        *count = CAPACITY;
        return NVML_INSUFFICIENT_SIZE;
    }
    memcpy(out, all, found * sizeof *out);
    *count = found;
    return NVML_SUCCESS;
}

struct processes_use_info {
    unsigned version, count;
    unsigned long long last_seen_us;
    struct process_use_info *out;
};

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(fake_handle handle, struct processes_use_info *asked)
{
    struct process_use all[FAKE_MAX_PROCESSES];
    uint32_t found;
    ENTER_WHOLE_GPU(nvmlDeviceGetProcessesUtilizationInfo);
    if (asked->version != (1U << 24 | sizeof *asked))
        return NVML_VERSION_OF_ARGUMENT;
    if (gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    if (!asked->out) {
        asked->count = CAPACITY;
        return NVML_INSUFFICIENT_SIZE;
    }
    found = uses_since(gpu, asked->last_seen_us, all);
    if (found == 0)
        return NVML_NOT_FOUND;
    if (found > asked->count) {
        asked->count = CAPACITY;
        return NVML_INSUFFICIENT_SIZE;
    }
    for (uint32_t at = 0; at < found; at++)
        asked->out[at] = (struct process_use_info){all[at].stamp_us, all[at].pid,     all[at].sm, all[at].memory,
                                                   all[at].encoder,  all[at].decoder, 0,          0};
    asked->count = found;
    return NVML_SUCCESS;
}
