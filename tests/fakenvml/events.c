/* Events: sets that wait until the test reports something. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "entry.h"

/* A driver that died never frees its sets, and many die in one test process. */
#define MAX_SETS 4096
/* No event wakes a wait for a lost GPU, and polling often would show in the CPU load. */
#define MOST_NAP_NS 500000000ULL

struct set {
    uint32_t allocated;
    uint64_t seen; /* events that it has looked at */
    uint64_t wanted[FAKE_MAX_GPUS];
};

static struct set sets[MAX_SETS];

static struct set *known(void *pointer)
{
    struct set *set = pointer;
    uint64_t offset = (uint64_t)((char *)pointer - (char *)sets);

    return offset >= sizeof sets || offset % sizeof *sets || !set->allocated ? NULL : set;
}

EXPORT int nvmlEventSetCreate(struct set **out)
{
    ENTER(nvmlEventSetCreate);
    for (uint32_t at = 0; at < MAX_SETS; at++)
        if (!__atomic_exchange_n(&sets[at].allocated, 1, __ATOMIC_ACQ_REL)) {
            memset(sets[at].wanted, 0, sizeof sets[at].wanted);
            sets[at].seen = fake->event_count;
            __atomic_add_fetch(&fake->event_sets_created, 1, __ATOMIC_RELAXED);
            *out = &sets[at];
            return NVML_SUCCESS;
        }
    return NVML_MEMORY;
}

EXPORT int nvmlEventSetFree(void *pointer)
{
    struct set *set = known(pointer);
    ENTER(nvmlEventSetFree);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    __atomic_add_fetch(&fake->event_sets_freed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&set->allocated, 0, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, gpu->supported_events)

EXPORT int nvmlDeviceRegisterEvents(fake_handle handle, unsigned long long types, void *pointer)
{
    struct set *set = known(pointer);
    ENTER_WHOLE_GPU(nvmlDeviceRegisterEvents);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    if (!types || types & ~gpu->supported_events)
        return NVML_NOT_SUPPORTED;
    set->wanted[fake_slot_of(gpu)] |= types;
    return NVML_SUCCESS;
}

struct event_v1 {
    fake_handle device;
    unsigned long long type, data;
};

struct event_v2 {
    fake_handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* TIMEOUT: nothing yet. */
static int look(struct set *set, struct event_v2 *out)
{
    uint64_t count = *(volatile uint64_t *)&fake->event_count;

    if (count - set->seen > FAKE_MAX_EVENTS)
        set->seen = count - FAKE_MAX_EVENTS;
    while (set->seen < count) {
        const struct fake_event *event = &fake->events[set->seen++ % FAKE_MAX_EVENTS];
        if (!(set->wanted[event->slot] & event->type))
            continue;
        *out = (struct event_v2){fake_handle_of(event->slot), event->type, event->data, event->gpu_instance,
                                 event->compute_instance};
        return NVML_SUCCESS;
    }
    for (uint32_t slot = 0; slot < FAKE_MAX_GPUS; slot++)
        if (set->wanted[slot] && fake->gpus[slot].error == NVML_GPU_IS_LOST)
            return NVML_GPU_IS_LOST;
    return NVML_TIMEOUT;
}

/* The time-out is the machine's time, also where the driver has a clock of its own. */
static int wait_for(enum fake_function_id id, void *pointer, struct event_v2 *out, unsigned timeout_ms)
{
    uint64_t until_ns = fake_real_now_ns() + timeout_ms * 1000000ULL, init = fake_stay();
    struct fake_function *record = &fake->functions[id];
    int code;

    __atomic_add_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
    while ((code = known(pointer) ? look(pointer, out) : NVML_INVALID_ARGUMENT) == NVML_TIMEOUT) {
        uint64_t now_ns = fake_real_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        struct timespec nap = {0, (long)(left_ns < MOST_NAP_NS ? left_ns : MOST_NAP_NS)};
        if (left_ns == 0)
            break;
        /* Until a reported event changes the count and wakes the waiting thread. */
        syscall(SYS_futex, &fake->event_count, FUTEX_WAIT, (uint32_t)((struct set *)pointer)->seen, &nap, NULL, 0);
        if ((code = fake_left(init) ? NVML_UNINITIALIZED : fake_reaches_all(id)))
            break;
    }
    __atomic_sub_fetch(&record->waiting, 1, __ATOMIC_RELAXED);
    fake_leave();
    return code;
}

EXPORT int nvmlEventSetWait_v2(void *set, struct event_v2 *out, unsigned timeout_ms)
{
    ENTER(nvmlEventSetWait_v2);
    return wait_for(FAKE_ID_nvmlEventSetWait_v2, set, out, timeout_ms);
}

EXPORT int nvmlEventSetWait(void *set, struct event_v1 *out, unsigned timeout_ms)
{
    struct event_v2 event = {0};
    int code;
    ENTER(nvmlEventSetWait);
    code = wait_for(FAKE_ID_nvmlEventSetWait, set, &event, timeout_ms);
    if (code == NVML_SUCCESS)
        *out = (struct event_v1){event.device, event.type, event.data};
    return code;
}
