/* What a GPU is doing: a square wave that needs no writer, or an explicit ring. */
#include "fake.h"

#define POWER_DEPTH 119 /* as many as nvidia-smi prints of real boards */

/* Samples at regular times. */
struct series {
    const struct fake_gpu *gpu;
    uint64_t window_ns;
    uint64_t first_ns; /* where window 1 begins */
    uint32_t depth;
    int is_power;
};

/* Busy nanoseconds of the wave from its start to `at_ns`. */
static uint64_t busy_until(const struct fake_wave *wave, uint64_t at_ns)
{
    uint64_t shifted = at_ns - fake->origin_ns + wave->phase_ns;
    uint64_t within = shifted % wave->period_ns;

    return shifted / wave->period_ns * wave->busy_ns + (within < wave->busy_ns ? within : wave->busy_ns);
}

uint64_t fake_busy_ns(const struct fake_wave *wave, uint64_t start_ns, uint64_t end_ns)
{
    if (start_ns < fake->origin_ns)
        start_ns = fake->origin_ns;
    return end_ns > start_ns ? busy_until(wave, end_ns) - busy_until(wave, start_ns) : 0;
}

static struct series utilisation_of(const struct fake_gpu *gpu)
{
    return (struct series){gpu, gpu->window_ns, fake->origin_ns + gpu->window_phase_ns,
                           gpu->ring_depth, 0};
}

static struct series power_of(const struct fake_gpu *gpu)
{
    return (struct series){gpu, gpu->power_window_ns, fake->origin_ns + gpu->window_phase_ns % gpu->power_window_ns,
                           POWER_DEPTH, 1};
}

static uint64_t end_of(const struct series *all, uint64_t window)
{
    return all->first_ns + window * all->window_ns;
}

static uint64_t newest_window(const struct series *all)
{
    uint64_t now_ns = fake_now_ns();

    return now_ns < all->first_ns ? 0 : (now_ns - all->first_ns) / all->window_ns;
}

/* Percent of the time since the sample before, to the nearest. */
static uint32_t percent_at(const struct series *all, uint64_t window)
{
    uint64_t busy_ns = fake_busy_ns(&all->gpu->wave, end_of(all, window - 1), end_of(all, window));

    return (uint32_t)((busy_ns * 100 + all->window_ns / 2) / all->window_ns);
}

static uint64_t raw_value(const struct fake_gpu *gpu, uint32_t number)
{
    union {
        double real;
        uint64_t raw;
    } value = {.raw = 0};

    if (gpu->value_type == 0)
        value.real = number;
    else
        value.raw = number;
    return value.raw;
}

/* The oldest window whose sample is still there, and newer than what was seen. */
static uint64_t first_window(const struct series *all, uint64_t newest, uint64_t last_seen_us)
{
    uint64_t window = newest > all->depth ? newest - all->depth + 1 : 1;

    if (!fake->offset_since_ns && newest) {
        /* Stamps rise, so what was seen can be skipped without looking at it. */
        int64_t seen_ns = ((int64_t)last_seen_us - fake->stamp_offset_us) * 1000 - (int64_t)all->first_ns;
        if (seen_ns > 0 && (uint64_t)seen_ns / all->window_ns > window)
            window = (uint64_t)seen_ns / all->window_ns;
    }
    return window;
}

static uint32_t series_since(const struct series *all, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    uint64_t newest = newest_window(all);
    uint32_t count = 0;

    for (uint64_t window = first_window(all, newest, last_seen_us); window <= newest && count < room; window++) {
        uint64_t end_ns = end_of(all, window), stamp_us = fake_stamp_us(end_ns);
        if (stamp_us <= last_seen_us)
            continue;
        if (all->gpu->dry_when_idle && percent_at(all, window) == 0)
            continue;
        if (out && all->is_power)
            out[count] = (struct fake_entry){stamp_us, fake_power_at_mw(all->gpu, end_ns)};
        else if (out)
            out[count] = (struct fake_entry){stamp_us, raw_value(all->gpu, percent_at(all, window))};
        count++;
    }
    return count;
}

static uint32_t ring_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    uint32_t depth = gpu->ring_depth < gpu->ring_count ? gpu->ring_depth : gpu->ring_count;
    uint32_t count = 0;

    for (uint32_t at = gpu->ring_count - depth; at < gpu->ring_count && count < room; at++) {
        const struct fake_entry *entry = &gpu->ring[at % FAKE_MAX_RING];
        if (entry->stamp_us <= last_seen_us)
            continue;
        if (out)
            out[count] = *entry;
        count++;
    }
    return count;
}

uint32_t fake_percent(const struct fake_gpu *gpu)
{
    struct series all = utilisation_of(gpu);
    uint64_t newest = newest_window(&all);

    if (gpu->rates_percent != FAKE_NO_OVERRIDE)
        return gpu->rates_percent;
    if (gpu->signal == FAKE_RING)
        return gpu->ring_count ? (uint32_t)gpu->ring[(gpu->ring_count - 1) % FAKE_MAX_RING].raw : 0;
    return newest ? percent_at(&all, newest) : 0;
}

uint32_t fake_entries_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    struct series all = utilisation_of(gpu);

    if (gpu->signal == FAKE_RING)
        return ring_since(gpu, last_seen_us, out, room);
    return series_since(&all, last_seen_us, out, room);
}

uint32_t fake_power_since(const struct fake_gpu *gpu, uint64_t last_seen_us, struct fake_entry *out, uint32_t room)
{
    struct series all = power_of(gpu);

    return series_since(&all, last_seen_us, out, room);
}
