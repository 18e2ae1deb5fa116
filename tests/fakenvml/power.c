/* What a GPU draws: one figure while its wave is busy, another while it is idle. */
#include "fake.h"

static uint64_t idle_mw(const struct fake_gpu *gpu)
{
    return gpu->idle_power_mw ? gpu->idle_power_mw : gpu->power_mw;
}

/* Milliwatt nanoseconds may pass 64 bits in a day, so they are kept as real numbers. */
static double millijoules(const struct fake_gpu *gpu, uint64_t start_ns, uint64_t end_ns)
{
    double busy_ns = (double)fake_busy_ns(&gpu->wave, start_ns, end_ns);
    double idle_ns = (double)(end_ns - start_ns) - busy_ns;

    return (busy_ns * gpu->power_mw + idle_ns * (double)idle_mw(gpu)) * 1e-9;
}

uint32_t fake_power_at_mw(const struct fake_gpu *gpu, uint64_t at_ns)
{
    return fake_busy_ns(&gpu->wave, at_ns - 1, at_ns) ? gpu->power_mw : (uint32_t)idle_mw(gpu);
}

uint32_t fake_power_average_mw(const struct fake_gpu *gpu)
{
    uint64_t now_ns = fake_now_ns();

    if (!gpu->power_average_ns || !gpu->idle_power_mw)
        return fake_power_at_mw(gpu, now_ns);
    return (uint32_t)(millijoules(gpu, now_ns - gpu->power_average_ns, now_ns) * 1e9 / (double)gpu->power_average_ns + 0.5);
}

uint64_t fake_energy_mj(const struct fake_gpu *gpu)
{
    return gpu->energy_mj + (uint64_t)millijoules(gpu, fake->origin_ns, fake_now_ns());
}
