/* GPM: two samples, and what the GPU did in between. */
#include "entry.h"

#define MAX_SAMPLES 4096

struct sample {
    uint32_t allocated;                   /* the driver's generation then, counted from 1 */
    uint32_t is_taken;
    uint32_t slot;
    uint32_t serial; /* of the part; 0: of the whole GPU */
    uint32_t part;
    uint32_t epoch;
    uint64_t taken_ns;
    uint64_t mapping;
};

/* A table, so that a pointer that was freed, or never handed out, is known as such. */
static struct sample samples[MAX_SAMPLES];

static uint32_t generation(void)
{
    return fake ? fake->generation + 1 : 0;
}

static struct sample *known(void *pointer)
{
    struct sample *sample = pointer;
    uint64_t offset = (uint64_t)((char *)pointer - (char *)samples);

    if (offset >= sizeof samples || offset % sizeof *samples || sample->allocated != generation())
        return NULL;
    return sample;
}

struct support {
    unsigned version, is_supported;
};

EXPORT int nvmlGpmQueryDeviceSupport(fake_handle handle, struct support *out)
{
    ENTER_GPU(nvmlGpmQueryDeviceSupport);
    if (out->version != 1)
        return NVML_VERSION_OF_ARGUMENT;
    out->is_supported = gpu->gpm_supported;
    return NVML_SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(struct sample **out)
{
    ENTER(nvmlGpmSampleAlloc);
    for (uint32_t at = 0; at < MAX_SAMPLES; at++) {
        uint32_t held = samples[at].allocated;

        /* Samples of an unloaded driver are gone, although no process could free them. */
        if (held != generation() && __atomic_compare_exchange_n(&samples[at].allocated, &held, generation(), 0,
                                                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            if (held)
                __atomic_add_fetch(&fake->gpm_freed, 1, __ATOMIC_RELAXED);
            samples[at].is_taken = 0;
            __atomic_add_fetch(&fake->gpm_allocated, 1, __ATOMIC_RELAXED);
            *out = &samples[at];
            return NVML_SUCCESS;
        }
    }
    return NVML_MEMORY;
}

EXPORT int nvmlGpmSampleFree(void *pointer)
{
    struct sample *sample = known(pointer);
    ENTER(nvmlGpmSampleFree);
    if (!sample)
        return NVML_INVALID_ARGUMENT;
    __atomic_add_fetch(&fake->gpm_freed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&sample->allocated, 0, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

static int take(const struct fake_gpu *gpu, const struct fake_part *part, void *pointer)
{
    struct sample *sample = known(pointer);

    if (!sample)
        return NVML_INVALID_ARGUMENT;
    if (!gpu->gpm_supported)
        return NVML_NOT_SUPPORTED;
    sample->slot = fake_slot_of(gpu);
    sample->part = part ? (uint32_t)(part - gpu->parts) : 0;
    sample->serial = part ? part->serial : 0;
    sample->epoch = gpu->handle_epoch;
    sample->taken_ns = fake_now_ns();
    sample->is_taken = 1;
    return NVML_SUCCESS;
}

/* Of a GPU that is cut only the parts can be sampled; by their own handles, too. */
EXPORT int nvmlGpmSampleGet(fake_handle handle, void *sample)
{
    ENTER_GPU(nvmlGpmSampleGet);
    if (gpu->mig_enabled && !fake_part_of(handle))
        return NVML_NOT_SUPPORTED;
    return take(gpu, fake_part_of(handle), sample);
}

EXPORT int nvmlGpmMigSampleGet(fake_handle handle, unsigned gpu_instance, void *sample)
{
    ENTER_WHOLE_GPU(nvmlGpmMigSampleGet);
    if (!gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    for (uint32_t at = 0; at < FAKE_MAX_PARTS; at++)
        if (gpu->parts[at].exists && gpu->parts[at].gpu_instance == gpu_instance)
            return take(gpu, &gpu->parts[at], sample);
    return NVML_INVALID_ARGUMENT;
}

/* -- the metrics --------------------------------------------------------------- */

struct metric {
    unsigned id, code;
    double value;
    const char *short_name, *long_name, *unit;
};

struct metrics_get {
    unsigned version, count;
    void *before, *after;
    struct metric metrics[];
};

enum metric_id {
    GRAPHICS = 1, SM = 2, OCCUPANCY = 3, TENSOR = 5, HMMA = 7, DRAM = 10, PCIE_TX = 20, PCIE_RX = 21,
    NVLINK_RX = 60, NVLINK_TX = 61,
};

static int answer(const struct fake_gpu *gpu, const struct fake_activity *activity, double busy_percent,
                  struct metric *out)
{
    const double mib = 1024.0 * 1024.0;

    switch (out->id) {
    case GRAPHICS: out->value = busy_percent; break;
    case SM: out->value = busy_percent * activity->sm_ratio; break;
    case OCCUPANCY: out->value = busy_percent * activity->occupancy_ratio; break;
    case TENSOR:
    case HMMA: out->value = busy_percent * activity->tensor_ratio; break;
    case DRAM: out->value = busy_percent * activity->dram_ratio; break;
    case PCIE_TX: out->value = (double)gpu->pcie_tx_bytes_per_s / mib; break;
    case PCIE_RX: out->value = (double)gpu->pcie_rx_bytes_per_s / mib; break;
    case NVLINK_RX: out->value = (double)gpu->nvlink_rx_bytes_per_s * gpu->nvlink_count / mib; break;
    case NVLINK_TX: out->value = (double)gpu->nvlink_tx_bytes_per_s * gpu->nvlink_count / mib; break;
    default: return NVML_NOT_SUPPORTED;
    }
    out->short_name = out->long_name = "as asked";
    out->unit = out->id < PCIE_TX ? "%" : "MiB/s";
    return NVML_SUCCESS;
}

EXPORT int nvmlGpmMetricsGet(struct metrics_get *asked)
{
    struct sample *before = known(asked->before), *after = known(asked->after);
    const struct fake_gpu *gpu;
    const struct fake_part *part;
    uint64_t window_ns, busy_ns;
    ENTER(nvmlGpmMetricsGet);
    if (asked->version != 1)
        return NVML_VERSION_OF_ARGUMENT;
    if (!before || !after || !before->is_taken || !after->is_taken || before->slot != after->slot ||
        before->serial != after->serial || before->part != after->part || before->epoch != after->epoch ||
        after->taken_ns < before->taken_ns)
        return NVML_INVALID_ARGUMENT;
    gpu = &fake->gpus[after->slot];
    if (gpu->error)
        return gpu->error;
    if (fake->functions[FAKE_ID_nvmlGpmMetricsGet].gpu_error[after->slot])
        return fake->functions[FAKE_ID_nvmlGpmMetricsGet].gpu_error[after->slot];
    part = after->serial ? &gpu->parts[after->part] : NULL;
    window_ns = after->taken_ns - before->taken_ns;
    busy_ns = fake_busy_ns(part ? &part->wave : &gpu->wave, before->taken_ns, after->taken_ns);
    for (unsigned at = 0; at < asked->count; at++) {
        struct metric *metric = &asked->metrics[at];
        metric->value = 0;
        if (window_ns < fake->gpm_shortest_ns || window_ns == 0)
            metric->code = (unsigned)fake->gpm_too_short_error;
        else
            metric->code = (unsigned)answer(gpu, part ? &part->activity : &gpu->activity,
                                            100.0 * (double)busy_ns / (double)window_ns, metric);
    }
    return NVML_SUCCESS;
}
