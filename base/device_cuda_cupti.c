/* Activity records of the "cuda" device through CUPTI, which is loaded for an audit and let go after
 * it, so that a program that is not audited never meets it. */
#include "base/device_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#ifdef SCALESTUDY_CUPTI

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
typedef CUpti_ActivityMemcpy6 copy_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
typedef CUpti_ActivityMemcpy5 copy_record;
#endif
typedef CUpti_ActivityMemset4 fill_record;

#define FUNCTIONS(X)                                                                               \
    X(cuptiActivityRegisterCallbacks,                                                              \
      (CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc))                       \
    X(cuptiActivityEnable, (CUpti_ActivityKind))                                                   \
    X(cuptiActivityDisable, (CUpti_ActivityKind))                                                  \
    X(cuptiActivityFlushAll, (uint32_t))                                                           \
    X(cuptiActivityGetNextRecord, (uint8_t *, size_t, CUpti_Activity **))                          \
    X(cuptiActivityGetNumDroppedRecords, (CUcontext, uint32_t, size_t *))                          \
    X(cuptiGetStreamIdEx, (CUcontext, CUstream, uint8_t, uint32_t *))                              \
    X(cuptiGetResultString, (CUptiResult, const char **))                                          \
    X(cuptiFinalize, (void))

enum { BUFFER_BYTES = 8 << 20, BUFFER_ALIGN = 8, STREAMS_MOST = 64 };

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* The library's callbacks carry no argument: there is one trace in a process at a time. */
static struct {
    void *library;
#define FUNCTION_MEMBER(name, parameters) CUptiResult(CUPTIAPI *name) parameters;
    struct {
        FUNCTIONS(FUNCTION_MEMBER)
    } call;
#undef FUNCTION_MEMBER
    int n_streams;
    uint32_t stream_id[STREAMS_MOST];
    pthread_mutex_t lock; /* buffers come back on a thread of the library */
    struct device_record *records;
    int64_t n, capacity;
    int64_t lost;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int refuse(CUptiResult result, const char *call)
{
    const char *words = "no words for it";

    trace.call.cuptiGetResultString(result, &words);
    return fail(FAIL_ABSENT, "audit: %s: %s (%d)", call, words, (int)result);
}

#define CUPTI_TRY(name, arguments)                                                                 \
    do {                                                                                           \
        CUptiResult cupti_result = trace.call.name arguments;                                      \
        if (cupti_result != CUPTI_SUCCESS) {                                                       \
            rc = refuse(cupti_result, #name);                                                      \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

static int load(void)
{
    char newest[32];

    if (trace.library != NULL)
        return 0;
    snprintf(newest, sizeof newest, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    trace.library = dlopen(SCALESTUDY_CUPTI, RTLD_NOW | RTLD_LOCAL);
    if (trace.library == NULL)
        trace.library = dlopen(newest, RTLD_NOW | RTLD_LOCAL);
    if (trace.library == NULL)
        return fail(FAIL_ABSENT, "audit: CUPTI cannot be loaded: %s", dlerror());
#define FUNCTION_TAKE(name, parameters)                                                            \
    do {                                                                                           \
        void *symbol = dlsym(trace.library, #name);                                                \
        if (symbol == NULL)                                                                        \
            return fail(FAIL_ABSENT, "audit: CUPTI has no " #name);                                \
        memcpy(&trace.call.name, &symbol, sizeof symbol);                                          \
    } while (0);
    FUNCTIONS(FUNCTION_TAKE)
#undef FUNCTION_TAKE
    return 0;
}

/* ---- buffers ---- */

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *size = BUFFER_BYTES;
    *most_records = 0;
    *buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    if (*buffer == NULL)
        *size = 0;
}

static int stream_of(uint32_t id)
{
    for (int i = 0; i < trace.n_streams; i++)
        if (trace.stream_id[i] == id)
            return i;
    return -1;
}

static void add(uint64_t begin, uint64_t end, uint32_t stream, const char *name, bool is_copy)
{
    struct device_record *record;

    if (trace.n == trace.capacity) {
        trace.capacity = trace.capacity > 0 ? 2 * trace.capacity : 16384;
        trace.records = must_grow(trace.records, (size_t)trace.capacity, sizeof *trace.records);
    }
    record = &trace.records[trace.n++];
    record->begin_ns = (int64_t)begin;
    record->end_ns = (int64_t)end;
    record->stream = stream_of(stream);
    record->is_copy = is_copy;
    snprintf(record->name, sizeof record->name, "%.*s", (int)sizeof record->name - 1, name);
}

static void keep(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
        record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        const kernel_record *kernel = (const kernel_record *)(const void *)record;
        add(kernel->start, kernel->end, kernel->streamId, kernel->name != NULL ? kernel->name : "",
            false);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const copy_record *copy = (const copy_record *)(const void *)record;
        add(copy->start, copy->end, copy->streamId, "copy", true);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const fill_record *fill = (const fill_record *)(const void *)record;
        add(fill->start, fill->end, fill->streamId, "fill", false);
    }
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;

    (void)size;
    pthread_mutex_lock(&trace.lock);
    while (valid > 0 &&
           trace.call.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        keep(record);
    if (trace.call.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        trace.lost += (int64_t)dropped;
    pthread_mutex_unlock(&trace.lock);
    free(buffer);
}

/* ---- begin and end ---- */

int device_cuda_trace_begin(struct device *device)
{
    const struct cuda *cuda = device->state;
    int rc = 0;

    TRY(load());
    trace.n = trace.lost = 0;
    trace.n_streams = cuda->n_streams < STREAMS_MOST ? cuda->n_streams : STREAMS_MOST;
    CUPTI_TRY(cuptiActivityRegisterCallbacks, (give_buffer, take_buffer));
    for (int i = 0; i < N_KINDS; i++)
        CUPTI_TRY(cuptiActivityEnable, (kinds[i]));
    for (int i = 0; i < trace.n_streams; i++)
        CUPTI_TRY(cuptiGetStreamIdEx, (NULL, cuda->streams[i], 0, &trace.stream_id[i]));
out:
    return rc;
}

static int by_begin(const void *a, const void *b)
{
    const struct device_record *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

int device_cuda_trace_end(struct device *device, struct device_record **records, int64_t *n,
                          int64_t *lost)
{
    int rc = 0;

    (void)device;
    CUPTI_TRY(cuptiActivityFlushAll, (CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    for (int i = 0; i < N_KINDS; i++)
        CUPTI_TRY(cuptiActivityDisable, (kinds[i]));
    CUPTI_TRY(cuptiFinalize, ());
    pthread_mutex_lock(&trace.lock);
    *records = trace.records;
    *n = trace.n;
    *lost = trace.lost;
    trace.records = NULL;
    trace.n = trace.capacity = 0;
    pthread_mutex_unlock(&trace.lock);
    if (*n > 0)
        qsort(*records, (size_t)*n, sizeof **records, by_begin);
out:
    return rc;
}

#endif
