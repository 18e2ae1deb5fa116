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

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
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

/* The latency is read again every millisecond, so that a test can end a hang. */
static void wait_as_told(struct fake_function *record, volatile uint64_t *latency_us)
{
    uint64_t started = fake_now_ns();
    uint64_t wanted;

    __atomic_add_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
    while ((wanted = *latency_us * 1000) > 0) {
        uint64_t passed = fake_now_ns() - started;
        uint64_t left = wanted > passed ? wanted - passed : 0;
        struct timespec nap = {0, (long)(left < 1000000 ? left : 1000000)};
        if (left == 0)
            break;
        nanosleep(&nap, NULL);
    }
    __atomic_sub_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
}

static int count_and_wait(enum fake_function_id id)
{
    struct fake_function *record = &fake->functions[id];

    __atomic_add_fetch(&record->calls, 1, __ATOMIC_RELAXED);
    if (record->latency_us)
        wait_as_told(record, &record->latency_us);
    return record->error;
}

/* A process may be pointed at another control file between two inits. */
int fake_open(enum fake_function_id id)
{
    int error;

    if (inits == 0) {
        if (fake)
            munmap(fake, sizeof(struct fake_control));
        fake = map_control();
    }
    if (!fake)
        return NVML_UNKNOWN;
    if ((error = count_and_wait(id)))
        return error;
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

int fake_enter(enum fake_function_id id)
{
    int error;

    if (!fake || inits == 0)
        return NVML_UNINITIALIZED;
    if ((error = count_and_wait(id)))
        return error;
    if (generation_at_init != fake->generation)
        return NVML_UNINITIALIZED;
    return fake->general_error;
}

fake_handle fake_handle_of(uint32_t slot)
{
    return (fake_handle)(uintptr_t)(((uint64_t)(fake->generation + 1) << 16) | (slot + 1));
}

/* A part's handle is its GPU's with a number in the second byte. */
fake_handle fake_handle_of_part(uint32_t slot, uint32_t part)
{
    return (fake_handle)(uintptr_t)((uint64_t)(uintptr_t)fake_handle_of(slot) | (part + 1) << 8);
}

const struct fake_part *fake_part_of(fake_handle handle)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t part = (uint32_t)(number >> 8 & 0xff);

    return part ? &fake->gpus[(number & 0xff) - 1].parts[part - 1] : NULL;
}

uint32_t fake_slot_of(const struct fake_gpu *gpu)
{
    return (uint32_t)(gpu - fake->gpus);
}

int fake_enter_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t slot = (uint32_t)(number & 0xff) - 1;
    int error = fake_enter(id);

    if (error)
        return error;
    if (slot >= FAKE_MAX_GPUS || number >> 16 != fake->generation + 1)
        return NVML_INVALID_ARGUMENT;
    *gpu = &fake->gpus[slot];
    if (fake->functions[id].gpu_latency_us[slot])
        wait_as_told(&fake->functions[id], &fake->functions[id].gpu_latency_us[slot]);
    if ((*gpu)->error)
        return (*gpu)->error;
    return fake->functions[id].gpu_error[slot];
}
