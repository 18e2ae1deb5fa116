/* nvmlDeviceGetFieldValues: many readings in one call, each with a code of its own. */
#include "entry.h"

#define ALL_LINKS 0xffffffffU

struct field_value {
    uint32_t field, scope;
    int64_t stamp_us, latency_us;
    uint32_t value_type, code;
    uint64_t raw;
};

enum field {
    ECC_CORRECTED = 3,
    ECC_UNCORRECTED = 4,
    ECC_CORRECTED_AGGREGATE = 5,
    ECC_UNCORRECTED_AGGREGATE = 6,
    NVLINK_COUNT = 91,
    NVLINK_DATA_TX = 138,
    NVLINK_DATA_RX = 139,
    NVLINK_RAW_TX = 140,
    NVLINK_RAW_RX = 141,
    POWER_AVERAGE = 185,
    POWER_INSTANT = 186,
    POWER_LIMIT = 190,
    ENERGY = 191,
    PCIE_TX_BYTES = 197,
    PCIE_RX_BYTES = 198,
};

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

static uint64_t grown(uint64_t per_s)
{
    return (uint64_t)((double)per_s * 1e-9 * (double)(fake_now_ns() - fake->origin_ns));
}

static int number(struct field_value *out, uint32_t type, uint64_t value)
{
    out->value_type = type;
    out->raw = value;
    return NVML_SUCCESS;
}

static int pcie_bytes(const struct fake_gpu *gpu, struct field_value *out, uint64_t per_s)
{
    uint64_t bytes = grown(per_s);

    return number(out, UNSIGNED_LONG_LONG, gpu->pcie_counter_wraps_at ? bytes % gpu->pcie_counter_wraps_at : bytes);
}

/* In KiB, of one link or of all; the raw counters have an eighth more, for the protocol. */
static int nvlink_kib(const struct fake_gpu *gpu, struct field_value *out, int sent, int raw)
{
    uint64_t per_s = sent ? gpu->nvlink_tx_bytes_per_s : gpu->nvlink_rx_bytes_per_s;

    if (!gpu->nvlink_count)
        return NVML_NOT_SUPPORTED;
    if (out->scope != ALL_LINKS && out->scope >= gpu->nvlink_count)
        return NVML_INVALID_ARGUMENT;
    if (out->scope == ALL_LINKS)
        per_s *= gpu->nvlink_count;
    return number(out, UNSIGNED_LONG_LONG, grown(raw ? per_s + per_s / 8 : per_s) >> 10);
}

static int answer(const struct fake_gpu *gpu, struct field_value *out)
{
    if (out->field == 0 || out->field > fake->newest_field)
        return NVML_INVALID_ARGUMENT;
    switch (out->field) {
    case ECC_CORRECTED: return number(out, UNSIGNED_LONG_LONG, gpu->ecc_corrected);
    case ECC_UNCORRECTED: return number(out, UNSIGNED_LONG_LONG, gpu->ecc_uncorrected);
    case ECC_CORRECTED_AGGREGATE:
        return number(out, UNSIGNED_LONG_LONG, gpu->ecc_corrected + gpu->ecc_corrected_before);
    case ECC_UNCORRECTED_AGGREGATE:
        return number(out, UNSIGNED_LONG_LONG, gpu->ecc_uncorrected + gpu->ecc_uncorrected_before);
    case NVLINK_COUNT: return number(out, UNSIGNED_INT, gpu->nvlink_count);
    case NVLINK_DATA_TX: return nvlink_kib(gpu, out, 1, 0);
    case NVLINK_DATA_RX: return nvlink_kib(gpu, out, 0, 0);
    case NVLINK_RAW_TX: return nvlink_kib(gpu, out, 1, 1);
    case NVLINK_RAW_RX: return nvlink_kib(gpu, out, 0, 1);
    case POWER_AVERAGE: return number(out, UNSIGNED_INT, fake_power_average_mw(gpu));
    case POWER_INSTANT: return number(out, UNSIGNED_INT, fake_power_at_mw(gpu, fake_now_ns()));
    case POWER_LIMIT: return number(out, UNSIGNED_INT, gpu->enforced_limit_mw);
    case ENERGY: return number(out, UNSIGNED_LONG_LONG, fake_energy_mj(gpu));
    case PCIE_TX_BYTES: return pcie_bytes(gpu, out, gpu->pcie_tx_bytes_per_s);
    case PCIE_RX_BYTES: return pcie_bytes(gpu, out, gpu->pcie_rx_bytes_per_s);
    default: return NVML_NOT_SUPPORTED;
    }
}

EXPORT int nvmlDeviceGetFieldValues(fake_handle handle, int count, struct field_value *fields)
{
    ENTER_WHOLE_GPU(nvmlDeviceGetFieldValues);
    if (count < 1 || !fields)
        return NVML_INVALID_ARGUMENT;
    for (int at = 0; at < count; at++) {
        uint64_t started_ns = fake_real_now_ns();
        fields[at].code = (uint32_t)answer(gpu, &fields[at]);
        fields[at].stamp_us = (int64_t)fake_stamp_us(fake_now_ns());
        fields[at].latency_us = (int64_t)((fake_real_now_ns() - started_ns) / 1000);
    }
    if (fake->touches_one_field_more)
        fields[count].code = NVML_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}
