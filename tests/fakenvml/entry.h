/* What every exported function begins with: counting, waiting, failing as told. */
#ifndef ENTRY_H
#define ENTRY_H

#include <string.h>

#include "fake.h"

#define EXPORT __attribute__((visibility("default")))
#define ENTER(name) \
    do { \
        int error = fake_enter(FAKE_ID_##name); \
        if (error) \
            return error; \
    } while (0)
#define ENTER_GPU(name) \
    struct fake_gpu *gpu; \
    do { \
        int error = fake_enter_gpu(FAKE_ID_##name, handle, &gpu); \
        if (error) \
            return error; \
    } while (0)
#define ENTER_WHOLE_GPU(name) \
    struct fake_gpu *gpu; \
    do { \
        int error = fake_enter_whole_gpu(FAKE_ID_##name, handle, &gpu); \
        if (error) \
            return error; \
    } while (0)
/* A function that hands out one number of the GPU. */
#define NUMBER(name, type, value) \
    EXPORT int name(fake_handle handle, type *out) \
    { \
        ENTER_WHOLE_GPU(name); \
        (void)gpu; \
        *out = (type)(value); \
        return NVML_SUCCESS; \
    }
#define NUMBER_OF_KIND(name, type, value) \
    EXPORT int name(fake_handle handle, unsigned kind, type *out) \
    { \
        ENTER_WHOLE_GPU(name); \
        (void)gpu; \
        (void)kind; \
        *out = (type)(value); \
        return NVML_SUCCESS; \
    }

#define TWO_NUMBERS(name, first, second) \
    EXPORT int name(fake_handle handle, unsigned *one, unsigned *two) \
    { \
        ENTER_WHOLE_GPU(name); \
        (void)gpu; \
        *one = (first); \
        *two = (second); \
        return NVML_SUCCESS; \
    }

static inline int give_text(const char *text, char *out, unsigned room)
{
    if (strlen(text) + 1 > room)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

#endif
