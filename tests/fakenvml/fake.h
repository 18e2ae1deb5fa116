/* The control file of the fake libnvidia-ml.so.1: one mmap, shared by the
 * process under test and by the test that changes it meanwhile.
 *
 * layout.py reads these structs from here, one member a line, and makes them
 * for Python; their size is compared when the file is mapped. All members are
 * ordered so that the compiler adds no padding but what ctypes adds too. */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

#include "functions.h"

#define FAKE_MAGIC 0x314c4d564e454b46ULL
#define FAKE_MAX_GPUS 64
#define FAKE_MAX_RING 512
#define FAKE_MAX_PROCESSES 128
#define FAKE_MAX_PARTS 8
#define FAKE_MAX_FUNCTIONS 160
#define FAKE_MAX_EVENTS 256
#define FAKE_NO_OVERRIDE 0xffffffffU
#define FAKE_NO_INSTANCE 0xffffffffU

enum { FAKE_WAVE = 0, FAKE_RING = 1 };

enum nvml_code {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_MEMORY = 20,
    NVML_VERSION_OF_ARGUMENT = 25,
    NVML_UNKNOWN = 999,
};

struct fake_function {
    uint64_t calls;
    uint64_t inside_ns;                   /* what the latencies and the CPU time so far add up to */
    uint64_t latency_us;                  /* read again while waiting: 0 releases a hang */
    uint64_t burn_ns;                     /* CPU time that each call takes */
    uint64_t gpu_latency_us[FAKE_MAX_GPUS];
    int32_t gpu_error[FAKE_MAX_GPUS];
    int32_t error;
    uint32_t waiting;                     /* calls that are inside the latency now */
};

struct fake_process {
    uint64_t memory_bytes;
    uint64_t computes_from_ns;            /* on the driver's clock; 0: since ever ... */
    uint64_t computes_until_ns;           /* ... and 0: until now; then it is gone */
    uint64_t use_stamp_us;                /* 0: as computed; else its use bears this stamp, however old */
    uint32_t gpu;
    uint32_t pid;
    uint32_t sm_percent;
    uint32_t memory_percent;
    uint32_t encoder_percent;
    uint32_t decoder_percent;
    uint32_t graphics;                    /* 0 computes, 1 draws, 2 computes through MPS */
    uint32_t gpu_instance;                /* FAKE_NO_INSTANCE: on the whole GPU */
    uint32_t compute_instance;
    uint32_t reserved;
    char name[1024];
};

struct fake_entry {
    uint64_t stamp_us;
    uint64_t raw;                         /* the eight bytes of nvmlValue_t */
};

struct fake_event {
    uint64_t type;
    uint64_t data;                        /* of an XID error: its number */
    uint32_t slot;
    uint32_t gpu_instance;
    uint32_t compute_instance;
    uint32_t reserved;
};

struct fake_wave {                        /* busy for busy_ns of every period_ns */
    uint64_t period_ns;
    uint64_t busy_ns;
    uint64_t phase_ns;
};

struct fake_activity {                    /* of the time it is busy, how much works: 0 to 1 */
    double sm_ratio;
    double occupancy_ratio;
    double tensor_ratio;
    double dram_ratio;
};

struct fake_part {                        /* a compute instance of a GPU with MIG on */
    char uuid[96];
    char name[96];
    uint64_t memory_total;
    uint64_t memory_used;
    struct fake_wave wave;
    struct fake_activity activity;
    uint32_t exists;
    uint32_t serial;                      /* of its handle: another one, another instance */
    uint32_t gpu_instance;
    uint32_t compute_instance;
    uint32_t gpu_slices;
    uint32_t compute_slices;
    uint32_t multiprocessors;
    uint32_t reserved;
};

struct fake_gpu {
    char uuid[96];
    char name[96];
    char bus_id[32];
    uint64_t memory_total;
    uint64_t memory_used;
    uint64_t memory_reserved;
    uint64_t energy_mj;                   /* at the origin; then grows with the power */
    struct fake_wave wave;
    uint64_t window_ns;                   /* what one utilisation sample covers ... */
    uint64_t window_phase_ns;             /* ... and how long after the origin its windows begin */
    uint64_t power_window_ns;             /* between power samples, while busy */
    uint64_t power_average_ns;            /* what nvmlDeviceGetPowerUsage looks back over */
    uint64_t throttle_reasons;            /* the bits of nvmlClocksEventReason */
    uint64_t ecc_corrected;               /* since the driver was loaded */
    uint64_t ecc_uncorrected;
    uint64_t ecc_corrected_before;        /* of earlier loads: aggregate counters have both */
    uint64_t ecc_uncorrected_before;
    uint64_t supported_events;
    uint64_t pcie_tx_bytes_per_s;
    uint64_t pcie_rx_bytes_per_s;
    uint64_t pcie_counter_wraps_at;       /* 0: it does not */
    uint64_t nvlink_tx_bytes_per_s;       /* of each link */
    uint64_t nvlink_rx_bytes_per_s;
    struct fake_activity activity;
    uint32_t power_mw;                    /* while busy ... */
    uint32_t idle_power_mw;               /* ... and while idle; 0: the same */
    uint32_t power_limit_mw;
    uint32_t enforced_limit_mw;
    uint32_t temperature_c;
    uint32_t sm_clock_mhz;
    uint32_t mem_clock_mhz;
    uint32_t max_sm_clock_mhz;
    uint32_t max_mem_clock_mhz;
    uint32_t performance_state;
    uint32_t persistence_mode;
    uint32_t fan_percent;
    uint32_t encoder_percent;
    uint32_t decoder_percent;
    uint32_t nvlink_count;
    uint32_t gpm_supported;
    uint32_t mig_enabled;
    uint32_t mig_pending;                 /* FAKE_NO_OVERRIDE: as mig_enabled */
    uint32_t handle_epoch;                /* another one: handles of before are void */
    uint32_t signal;
    uint32_t dry_when_idle;
    uint32_t value_type;                  /* nvmlValueType_t of the ring */
    uint32_t ring_depth;
    uint32_t ring_count;
    uint32_t rates_percent;               /* FAKE_NO_OVERRIDE: as the signal says */
    int32_t error;                        /* every call on this GPU answers this */
    uint32_t compute_capability;          /* 90: 9.0 */
    uint32_t reserved;
    struct fake_entry ring[FAKE_MAX_RING]; /* entry n is at n % FAKE_MAX_RING */
    struct fake_part parts[FAKE_MAX_PARTS];
};

struct fake_control {
    uint64_t magic;
    uint64_t size;
    uint64_t virtual_now_ns;              /* the driver's CLOCK_MONOTONIC; 0: the machine's own */
    uint64_t origin_ns;                   /* CLOCK_MONOTONIC at which the waves begin */
    int64_t stamp_offset_us;              /* stamp = monotonic us + offset ... */
    int64_t earlier_offset_us;            /* ... but this one for windows that ended before */
    uint64_t offset_since_ns;             /* this instant (a wall clock that jumped) */
    uint64_t event_count;                 /* events there ever were: the newest at event_count - 1 */
    uint64_t gpm_allocated;
    uint64_t gpm_freed;
    uint64_t event_sets_created;
    uint64_t event_sets_freed;
    uint64_t process_buffer_ns;           /* how far back the driver knows what processes used */
    uint64_t gpm_shortest_ns;             /* GPM samples closer than that ... */
    int32_t gpm_too_short_error;          /* ... have this instead of each value */
    uint32_t gpu_count;
    uint32_t process_count;
    uint32_t generation;                  /* a driver reload: handles and inits of before are void */
    int32_t general_error;                /* every call but init answers this */
    uint32_t cuda_version;
    uint32_t newest_field;                /* field ids above are unknown to this driver */
    uint32_t touches_one_field_more;      /* nvmlDeviceGetFieldValues writes behind the end */
    int32_t process_size_error;           /* what the size question of process utilisation answers */
    uint32_t wide_processes;              /* _v3 lists have protected memory too, as 535's first had */
    uint32_t slot_of_index[FAKE_MAX_GPUS];
    char driver_version[80];
    char nvml_version[80];
    struct fake_function functions[FAKE_MAX_FUNCTIONS];
    struct fake_process processes[FAKE_MAX_PROCESSES];
    struct fake_event events[FAKE_MAX_EVENTS];
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
int fake_reaches_all(enum fake_function_id id);   /* what fails every call, now */
int fake_enter_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu);
int fake_enter_whole_gpu(enum fake_function_id id, fake_handle handle, struct fake_gpu **gpu);
uint64_t fake_real_now_ns(void);
uint64_t fake_now_ns(void);
uint64_t fake_stamp_us(uint64_t monotonic_ns);
uint64_t fake_stay(void);                 /* keeps the mapping; gives the number of the init ... */
int fake_left(uint64_t init);             /* ... and says whether that init is over */
void fake_leave(void);

/* handles.c: which GPU, or part of one, a handle means */
fake_handle fake_handle_of(uint32_t slot);
fake_handle fake_handle_of_part(uint32_t slot, uint32_t part);
const struct fake_part *fake_part_of(fake_handle handle);   /* NULL: a whole GPU's handle */
uint32_t fake_slot_of(const struct fake_gpu *gpu);
int fake_find(fake_handle handle, struct fake_gpu **gpu);

/* signal.c: what a GPU is doing */
uint64_t fake_busy_ns(const struct fake_wave *wave, uint64_t start_ns, uint64_t end_ns);
uint32_t fake_percent(const struct fake_gpu *gpu);
uint32_t fake_entries_since(const struct fake_gpu *gpu, uint64_t last_seen_us,
                            struct fake_entry *out, uint32_t room);

/* power.c: what it draws meanwhile */
uint32_t fake_power_at_mw(const struct fake_gpu *gpu, uint64_t at_ns);
uint32_t fake_power_average_mw(const struct fake_gpu *gpu);
uint64_t fake_energy_mj(const struct fake_gpu *gpu);
uint32_t fake_power_since(const struct fake_gpu *gpu, uint64_t last_seen_us,
                          struct fake_entry *out, uint32_t room);

#endif
