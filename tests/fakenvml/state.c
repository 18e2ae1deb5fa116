/* The mapping of the control file, call counting, error and latency injection. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

struct fake_control *fake;
static uint32_t inits;
static uint32_t generation_at_init;
static uint64_t mappings;                 /* how many there were: another one, another test */
static uint32_t staying;                  /* calls that wait inside, and use the mapping later */

uint64_t fake_real_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint64_t fake_now_ns(void)
{
    uint64_t virtual_now_ns = *(volatile uint64_t *)&fake->virtual_now_ns;

    return virtual_now_ns ? virtual_now_ns : fake_real_now_ns();
}

uint64_t fake_stamp_us(uint64_t monotonic_ns)
{
    int64_t offset = monotonic_ns < fake->offset_since_ns ? fake->earlier_offset_us : fake->stamp_offset_us;

    return (uint64_t)((int64_t)(monotonic_ns / 1000) + offset);
}

uint64_t fake_stay(void)
{
    __atomic_add_fetch(&staying, 1, __ATOMIC_ACQ_REL);
    return __atomic_load_n(&mappings, __ATOMIC_ACQUIRE);
}

int fake_left(uint64_t init)
{
    return __atomic_load_n(&mappings, __ATOMIC_ACQUIRE) != init || __atomic_load_n(&inits, __ATOMIC_ACQUIRE) == 0;
}

void fake_leave(void)
{
    __atomic_sub_fetch(&staying, 1, __ATOMIC_ACQ_REL);
}

static struct fake_control *map_control(void)
{
    const char *path = getenv("FAKENVML_CTL");
    struct stat facts;
    void *memory = MAP_FAILED;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (file < 0)
        return NULL;
    if (fstat(file, &facts) == 0 && (uint64_t)facts.st_size >= sizeof(struct fake_control))
        memory = mmap(NULL, sizeof(struct fake_control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return NULL;
    if (((struct fake_control *)memory)->magic != FAKE_MAGIC ||
        ((struct fake_control *)memory)->size != sizeof(struct fake_control)) {
        munmap(memory, sizeof(struct fake_control));
        return NULL;
    }
    return memory;
}

/* The latency is read again every millisecond, so that a test can end a hang.
 * The end is waited for awake: a nap takes some 60 us more than it was given. */
static void wait_for_latency(struct fake_function *record, volatile uint64_t *latency_us)
{
    uint64_t started = fake_real_now_ns();
    uint64_t wanted, waited;

    fake_stay();
    __atomic_add_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
    while ((wanted = *latency_us * 1000) > 0) {
        uint64_t passed = fake_real_now_ns() - started;
        uint64_t left = wanted > passed ? wanted - passed : 0;
        struct timespec nap = {0, (long)(left < 1000000 ? left - 80000 : 1000000)};
        if (left == 0)
            break;
        if (left > 160000)
            nanosleep(&nap, NULL);
    }
    waited = fake_real_now_ns() - started;
    /* Not what a busy machine added to it. */
    __atomic_add_fetch(&record->inside_ns, wanted && wanted < waited ? wanted : waited, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
    fake_leave();
}

/* By the clock of this thread, which stands still while a busy machine runs others. */
static uint64_t thread_cpu_ns(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000ULL + (uint64_t)spent.tv_nsec;
}

static void burn(struct fake_function *record, uint64_t wanted_ns)
{
    uint64_t started_ns = thread_cpu_ns();

    fake_stay();
    while (thread_cpu_ns() - started_ns < wanted_ns)
        ;
    __atomic_add_fetch(&record->inside_ns, wanted_ns, __ATOMIC_RELAXED);
    fake_leave();
}

static void count_and_wait(enum fake_function_id id)
{
    struct fake_function *record = &fake->functions[id];

    __atomic_add_fetch(&record->calls, 1, __ATOMIC_RELAXED);
    if (record->burn_ns)
        burn(record, record->burn_ns);
    if (record->latency_us)
        wait_for_latency(record, &record->latency_us);
}

/* A process may be pointed at another control file between two inits. */
int fake_open(enum fake_function_id id)
{
    if (inits == 0) {
        if (fake && __atomic_load_n(&staying, __ATOMIC_ACQUIRE) == 0)
            munmap(fake, sizeof(struct fake_control));
        fake = map_control();
        __atomic_add_fetch(&mappings, 1, __ATOMIC_ACQ_REL);
    }
    if (!fake)
        return NVML_UNKNOWN;
    count_and_wait(id);
    if (fake->functions[id].error)
        return fake->functions[id].error;
    if (generation_at_init != fake->generation)
        inits = 0;
    generation_at_init = fake->generation;
    inits++;
    return NVML_SUCCESS;
}

int fake_close(void)
{
    if (inits == 0)
        return NVML_UNINITIALIZED;
    inits--;
    return NVML_SUCCESS;
}

int fake_reaches_all(enum fake_function_id id)
{
    if (fake->functions[id].error)
        return fake->functions[id].error;
    if (generation_at_init != fake->generation)
        return NVML_UNINITIALIZED;
    return fake->general_error;
}

int fake_enter(enum fake_function_id id)
{
    if (!fake || inits == 0)
        return NVML_UNINITIALIZED;
    count_and_wait(id);
    return fake_reaches_all(id);
}

int fake_enter_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu)
{
    int error = fake_enter(id);

    if (error || (error = fake_find(handle, gpu)))
        return error;
    if (fake->functions[id].gpu_latency_us[fake_slot_of(*gpu)])
        wait_for_latency(&fake->functions[id], &fake->functions[id].gpu_latency_us[fake_slot_of(*gpu)]);
    if ((*gpu)->error)
        return (*gpu)->error;
    return fake->functions[id].gpu_error[fake_slot_of(*gpu)];
}

/* Most functions know no part of a GPU. */
int fake_enter_whole_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu)
{
    int error = fake_enter_gpu(id, handle, gpu);

    return error ? error : fake_part_of(handle) ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}
