/* One number of a GPU a call: memory, utilisation, power, clocks, errors. */
#include "entry.h"

enum samples { POWER_SAMPLES = 0, UTILISATION_SAMPLES = 1, MEMORY_UTILISATION_SAMPLES = 2 };

/* -- memory ---------------------------------------------------------------- */

EXPORT int nvmlDeviceGetMemoryInfo(fake_handle handle, unsigned long long out[3])
{
    const struct fake_part *part;
    ENTER_GPU(nvmlDeviceGetMemoryInfo);
    part = fake_part_of(handle);
    out[0] = part ? part->memory_total : gpu->memory_total;
    /* Of a whole GPU the first version counts both. */
    out[2] = part ? part->memory_used : gpu->memory_used + gpu->memory_reserved;
    out[1] = out[0] - out[2];
    return NVML_SUCCESS;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(fake_handle handle, struct memory_v2 *out)
{
    const struct fake_part *part;
    ENTER_GPU(nvmlDeviceGetMemoryInfo_v2);
    part = fake_part_of(handle);
    out->total = part ? part->memory_total : gpu->memory_total;
    out->reserved = part ? 0 : gpu->memory_reserved;
    out->used = part ? part->memory_used : gpu->memory_used;
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

/* No memory is protected; only newer drivers have this function. */
EXPORT int nvmlDeviceGetConfComputeMemSizeInfo(fake_handle handle, unsigned long long out[2])
{
    ENTER_WHOLE_GPU(nvmlDeviceGetConfComputeMemSizeInfo);
    out[0] = 0;
    out[1] = gpu->memory_total >> 10;
    return NVML_SUCCESS;
}

/* -- utilisation ------------------------------------------------------------- */

EXPORT int nvmlDeviceGetUtilizationRates(fake_handle handle, unsigned out[2])
{
    ENTER_WHOLE_GPU(nvmlDeviceGetUtilizationRates);
    if (gpu->mig_enabled)
        return NVML_NOT_SUPPORTED;
    out[0] = fake_percent(gpu);
    out[1] = out[0] / 2;
    return NVML_SUCCESS;
}

/* A board without a power meter, or one that this user may not read, has no samples of it, either. */
static int power_meter_error(const struct fake_gpu *gpu)
{
    const struct fake_function *meter = &fake->functions[FAKE_ID_nvmlDeviceGetPowerUsage];
    int error = meter->error ? meter->error : meter->gpu_error[fake_slot_of(gpu)];

    return error == NVML_NOT_SUPPORTED || error == NVML_NO_PERMISSION ? error : NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetSamples(fake_handle handle, int kind, unsigned long long last_seen_us, int *value_type,
                                unsigned *count, struct fake_entry *out)
{
    uint32_t room = out ? *count : FAKE_MAX_RING, found;
    ENTER_WHOLE_GPU(nvmlDeviceGetSamples);
    if (kind == POWER_SAMPLES) {
        int refused = power_meter_error(gpu);
        if (refused)
            return refused;
        *value_type = 1;
        found = fake_power_since(gpu, last_seen_us, out, room);
    } else if (kind == UTILISATION_SAMPLES && !gpu->mig_enabled) {
        *value_type = (int)gpu->value_type;
        found = fake_entries_since(gpu, last_seen_us, out, room);
    } else {
        return NVML_NOT_SUPPORTED;
    }
    *count = found;
    return found ? NVML_SUCCESS : NVML_NOT_FOUND;
}

TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, gpu->encoder_percent, 166667)
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, gpu->decoder_percent, 166667)

/* -- power, temperature, clocks ----------------------------------------------- */

NUMBER(nvmlDeviceGetPowerUsage, unsigned, fake_power_average_mw(gpu))
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, gpu->power_limit_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->enforced_limit_mw)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, fake_energy_mj(gpu))
NUMBER(nvmlDeviceGetFanSpeed, unsigned, gpu->fan_percent)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, gpu->performance_state)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, gpu->persistence_mode)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, gpu->throttle_reasons)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, gpu->throttle_reasons)
EXPORT int nvmlDeviceGetTemperature(fake_handle handle, unsigned sensor, unsigned *out)
{
    ENTER_WHOLE_GPU(nvmlDeviceGetTemperature);
    if (sensor != 0) /* of the GPU: there is no other */
        return NVML_INVALID_ARGUMENT;
    *out = gpu->temperature_c;
    return NVML_SUCCESS;
}

NUMBER_OF_KIND(nvmlDeviceGetClockInfo, unsigned, kind == 2 ? gpu->mem_clock_mhz : gpu->sm_clock_mhz)
NUMBER_OF_KIND(nvmlDeviceGetMaxClockInfo, unsigned, kind == 2 ? gpu->max_mem_clock_mhz : gpu->max_sm_clock_mhz)
/* KB/s; a test sets the 20 ms of a real call, as any latency. */
NUMBER_OF_KIND(nvmlDeviceGetPcieThroughput, unsigned,
               (kind == 0 ? gpu->pcie_tx_bytes_per_s : gpu->pcie_rx_bytes_per_s) >> 10)

struct temperature_v1 {
    unsigned version;
    unsigned sensor;
    int celsius;
};

EXPORT int nvmlDeviceGetTemperatureV(fake_handle handle, struct temperature_v1 *out)
{
    ENTER_WHOLE_GPU(nvmlDeviceGetTemperatureV);
    if (out->version != (1U << 24 | sizeof *out))
        return NVML_VERSION_OF_ARGUMENT;
    if (out->sensor != 0)
        return NVML_INVALID_ARGUMENT;
    out->celsius = (int)gpu->temperature_c;
    return NVML_SUCCESS;
}

/* -- memory errors ------------------------------------------------------------ */

EXPORT int nvmlDeviceGetTotalEccErrors(fake_handle handle, unsigned uncorrected, unsigned aggregate,
                                       unsigned long long *out)
{
    ENTER_WHOLE_GPU(nvmlDeviceGetTotalEccErrors);
    if (uncorrected > 1 || aggregate > 1)
        return NVML_INVALID_ARGUMENT;
    *out = uncorrected ? gpu->ecc_uncorrected : gpu->ecc_corrected;
    if (aggregate)
        *out += uncorrected ? gpu->ecc_uncorrected_before : gpu->ecc_corrected_before;
    return NVML_SUCCESS;
}
