/* The control file of the fake libnvidia-ml.so.1: one mmap, shared by the
 * process under test and by the test that changes it meanwhile.
 *
 * layout.py mirrors these structs with ctypes and compares their size, so a
 * change here without a change there fails at once. All members are ordered
 * so that the compiler adds no padding but what ctypes adds too. */
#ifndef FAKE_H
#define FAKE_H

#include <stdint.h>

#include "functions.h"

#define FAKE_MAGIC 0x314c4d564e454b46ULL
#define FAKE_MAX_GPUS 16
#define FAKE_MAX_RING 512
#define FAKE_MAX_PROCESSES 128
#define FAKE_MAX_PARTS 8
#define FAKE_MAX_FUNCTIONS 128
#define FAKE_NO_OVERRIDE 0xffffffffU

enum { FAKE_WAVE = 0, FAKE_RING = 1 };

enum nvml_code {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_UNKNOWN = 999,
};

struct fake_function {
    uint64_t calls;
    uint64_t latency_us;                  /* read again while waiting: 0 releases a hang */
    uint64_t gpu_latency_us[FAKE_MAX_GPUS];
    int32_t gpu_error[FAKE_MAX_GPUS];
    int32_t error;
    uint32_t waiting;                     /* calls that are inside the latency now */
};

struct fake_process {
    uint64_t memory_bytes;
    uint32_t gpu;
    uint32_t pid;
    uint32_t sm_percent;
    uint32_t graphics;
    char name[1024];
};

struct fake_entry {
    uint64_t stamp_us;
    uint64_t raw;                         /* the eight bytes of nvmlValue_t */
};

struct fake_part {                        /* a compute instance of a GPU with MIG on */
    char uuid[96];
    char name[96];
    uint64_t memory_total;
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

struct fake_gpu {
    char uuid[96];
    char name[96];
    char bus_id[32];
    uint64_t memory_total;
    uint64_t memory_used;
    uint64_t memory_reserved;
    uint64_t energy_mj;                   /* at the origin; then grows with power_mw */
    uint64_t period_ns;
    uint64_t busy_ns;
    uint64_t phase_ns;
    uint64_t window_ns;
    uint32_t power_mw;
    uint32_t temperature_c;
    uint32_t sm_clock_mhz;
    uint32_t mem_clock_mhz;
    uint32_t mig_enabled;
    uint32_t signal;
    uint32_t dry_when_idle;
    uint32_t value_type;                  /* nvmlValueType_t of the ring */
    uint32_t ring_depth;
    uint32_t ring_count;
    uint32_t rates_percent;               /* FAKE_NO_OVERRIDE: as the signal says */
    int32_t error;                        /* every call on this GPU answers this */
    struct fake_entry ring[FAKE_MAX_RING];
    uint32_t part_count;
    uint32_t reserved;
    struct fake_part parts[FAKE_MAX_PARTS];
};

struct fake_control {
    uint64_t magic;
    uint64_t size;
    uint64_t origin_ns;                   /* CLOCK_MONOTONIC at which the windows begin */
    int64_t stamp_offset_us;              /* stamp = monotonic us + offset ... */
    int64_t earlier_offset_us;            /* ... but this one for windows that ended before */
    uint64_t offset_since_ns;             /* this instant (a wall clock that jumped) */
    uint32_t gpu_count;
    uint32_t process_count;
    uint32_t generation;                  /* a driver reload: handles and inits of before are void */
    int32_t general_error;                /* every call but init answers this */
    uint32_t cuda_version;
    uint32_t slot_of_index[FAKE_MAX_GPUS];
    uint32_t reserved;
    char driver_version[80];
    char nvml_version[80];
    struct fake_function functions[FAKE_MAX_FUNCTIONS];
    struct fake_process processes[FAKE_MAX_PROCESSES];
    struct fake_gpu gpus[FAKE_MAX_GPUS];
};

#define FAKE_ID(name) FAKE_ID_##name,
enum fake_function_id { FAKE_FUNCTIONS(FAKE_ID) FAKE_FUNCTION_COUNT };
#undef FAKE_ID

typedef void *fake_handle;

/* state.c: the mapping, and what happens before a call does its work */
extern struct fake_control *fake;
int fake_open(enum fake_function_id id);
int fake_close(void);
int fake_enter(enum fake_function_id id);
int fake_enter_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu);
fake_handle fake_handle_of(uint32_t slot);
fake_handle fake_handle_of_part(uint32_t slot, uint32_t part);
const struct fake_part *fake_part_of(fake_handle handle);   /* NULL: a whole GPU's handle */
uint32_t fake_slot_of(const struct fake_gpu *gpu);
uint64_t fake_now_ns(void);

/* signal.c: what a GPU is doing */
uint32_t fake_percent(const struct fake_gpu *gpu);
uint32_t fake_entries_since(const struct fake_gpu *gpu, uint64_t last_seen_us,
                            struct fake_entry *out, uint32_t room);

#endif
