/* What a GPU is doing: a square wave that needs no writer, or an explicit ring. */
#include "fake.h"

/* Busy nanoseconds of the wave from its start to `at_ns`. */
static uint64_t busy_until(const struct fake_gpu *gpu, uint64_t at_ns)
{
    uint64_t shifted = at_ns + gpu->phase_ns;
    uint64_t within = shifted % gpu->period_ns;

    return shifted / gpu->period_ns * gpu->busy_ns + (within < gpu->busy_ns ? within : gpu->busy_ns);
}

/* Percent of the window that ends `end_ns` after the origin, to the nearest. */
static uint32_t percent_of_window(const struct fake_gpu *gpu, uint64_t end_ns)
{
    uint64_t busy = busy_until(gpu, end_ns) - busy_until(gpu, end_ns - gpu->window_ns);

    return (uint32_t)((busy * 100 + gpu->window_ns / 2) / gpu->window_ns);
}

static uint64_t newest_window(const struct fake_gpu *gpu)
{
    uint64_t now = fake_now_ns();

    return now < fake->origin_ns ? 0 : (now - fake->origin_ns) / gpu->window_ns;
}

static uint64_t stamp_of(uint64_t monotonic_ns)
{
    int64_t offset = monotonic_ns < fake->offset_since_ns ? fake->earlier_offset_us : fake->stamp_offset_us;

    return (uint64_t)((int64_t)(monotonic_ns / 1000) + offset);
}

uint32_t fake_percent(const struct fake_gpu *gpu)
{
    uint64_t newest = newest_window(gpu);

    if (gpu->rates_percent != FAKE_NO_OVERRIDE)
        return gpu->rates_percent;
    if (gpu->signal == FAKE_RING)
        return gpu->ring_count ? (uint32_t)gpu->ring[gpu->ring_count - 1].raw : 0;
    return newest ? percent_of_window(gpu, newest * gpu->window_ns) : 0;
}

static uint64_t raw_value(const struct fake_gpu *gpu, uint32_t percent)
{
    union {
        double real;
        uint64_t raw;
    } value = {.raw = 0};

    if (gpu->value_type == 0)
        value.real = percent;
    else
        value.raw = percent;
    return value.raw;
}

static uint32_t wave_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    uint64_t newest = newest_window(gpu);
    uint64_t window = newest > gpu->ring_depth ? newest - gpu->ring_depth + 1 : 1;
    uint32_t count = 0;

    if (!fake->offset_since_ns && newest) {
        /* Stamps rise, so what was seen can be skipped without looking at it. */
        int64_t seen_ns = ((int64_t)last_seen_us - fake->stamp_offset_us) * 1000 - (int64_t)fake->origin_ns;
        if (seen_ns > 0 && (uint64_t)seen_ns / gpu->window_ns > window)
            window = (uint64_t)seen_ns / gpu->window_ns;
    }
    for (; window <= newest && count < room; window++) {
        uint64_t stamp = stamp_of(fake->origin_ns + window * gpu->window_ns);
        uint32_t percent = percent_of_window(gpu, window * gpu->window_ns);
        if (stamp <= last_seen_us || (gpu->dry_when_idle && percent == 0))
            continue;
        if (out)
            out[count] = (struct fake_entry){stamp, raw_value(gpu, percent)};
        count++;
    }
    return count;
}

static uint32_t ring_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    uint32_t depth = gpu->ring_depth < gpu->ring_count ? gpu->ring_depth : gpu->ring_count;
    uint32_t count = 0;

    for (uint32_t at = gpu->ring_count - depth; at < gpu->ring_count && count < room; at++) {
        if (gpu->ring[at].stamp_us <= last_seen_us)
            continue;
        if (out)
            out[count] = gpu->ring[at];
        count++;
    }
    return count;
}

uint32_t fake_entries_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    if (gpu->signal == FAKE_RING)
        return ring_since(gpu, last_seen_us, out, room);
    return wave_since(gpu, last_seen_us, out, room);
}
