/* What other tools ask for before they show anything. */
#include "entry.h"

TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, gpu->compute_capability / 10, gpu->compute_capability % 10)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, 0)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, 0)

#define REFUSED(name, ...) \
    EXPORT int name(fake_handle handle, __VA_ARGS__) \
    { \
        ENTER_GPU(name); \
        (void)gpu; \
        return NVML_NOT_SUPPORTED; \
    }
REFUSED(nvmlDeviceGetDriverModel, unsigned *current, unsigned *pending)
REFUSED(nvmlDeviceGetDriverModel_v2, unsigned *current, unsigned *pending)
