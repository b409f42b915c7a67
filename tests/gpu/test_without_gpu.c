/* What is asked of CUDA's libraries, with fakes in their place: no GPU is needed. Which engine of cuDNN
 * attention takes when sums must have an order, and that nothing is lost when any call fails; that a wait
 * of the host ends with the communicator that it waits for; that ranks agree before they gather. */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <setjmp.h>
#include <stdlib.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/kernels/cuda.h"
#include "workloads/kernels/cuda_cudnn_attention.h"

/* ---- a cuDNN that names what a test says ---- */

enum { MODES = 4, NAMED = 3, MOST_ENGINES = 16 };

static struct library {
    int named[MODES][NAMED]; /* engines by mode; 0: no more */
    bool no_order[MOST_ENGINES], no_notes[MOST_ENGINES], no_plan[MOST_ENGINES];
    int live;         /* descriptors */
    int fails_in;     /* calls until one fails; below 0: none does */
    bool plan_failed; /* the last plan that was finalised */
} library;

struct fake {
    int type, mode, engine;
};

static bool fails(void)
{
    return library.fails_in >= 0 && library.fails_in-- == 0;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    if (fails())
        return CUDNN_STATUS_ALLOC_FAILED;
    struct fake *fake = must_alloc(1, sizeof *fake);
    fake->type = (int)type;
    *out = fake;
    library.live++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    CHECK(descriptor != NULL);
    free(descriptor);
    library.live--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *value)
{
    struct fake *fake = descriptor;
    (void)type, (void)count;
    if (fails())
        return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
        fake->mode = (int)*(const cudnnBackendHeurMode_t *)value;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        fake->engine = (*(struct fake *const *)value)->engine;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    const struct fake *fake = descriptor;
    bool plan = fake->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
    if (fails() || (plan && library.no_plan[fake->engine]))
        return CUDNN_STATUS_NOT_SUPPORTED;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t name_engines(const struct fake *heuristic, int64_t most, int64_t *n,
                                  struct fake *const *out)
{
    const int *named = library.named[heuristic->mode];
    for (*n = 0; *n < NAMED && *n < most && named[*n] > 0; ++*n)
        out[*n]->engine = named[*n];
    return *n > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t tell_notes(int engine, int64_t *n, cudnnBackendNumericalNote_t *out)
{
    *n = 0;
    if (library.no_notes[engine])
        return CUDNN_STATUS_BAD_PARAM;
    out[(*n)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (library.no_order[engine])
        out[(*n)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                       void *out)
{
    const struct fake *fake = descriptor;
    (void)type;
    if (fails())
        return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return name_engines(fake, most, n, out);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
        return tell_notes(fake->engine, n, out);
    *n = 1;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
        (*(struct fake **)out)->engine = fake->engine;
    else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        *(int64_t *)out = fake->engine;
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        *(int64_t *)out = 1000 + fake->engine;
    else
        *n = 0; /* no engine has a knob */
    return CUDNN_STATUS_SUCCESS;
}

/* The engine of the plan of an attention; 0: none, `why` says so. */
static int engine_of(bool backward, bool fixed_order, char why[GRAPH_WHY])
{
    const struct shape_attention s = {
        .batch = 2, .sequence = 64, .heads = 4, .kv_heads = 2, .head = 64};
    struct attention_entry entry = {.shape = s, .backward = backward};
    struct cudnn_graph graph;
    struct cudnn_plan plan;
    attention_graph(&graph, NULL, &entry, fixed_order);
    int status = cudnn_graph_plan(&graph, fixed_order, &plan);
    snprintf(why, GRAPH_WHY, "%s", graph.why);
    cudnn_graph_end(&graph);
    int engine = plan.engine.index;
    CHECK_EQ(status == 0, plan.plan != NULL);
    CHECK_EQ(plan.workspace_bytes, status == 0 ? 1000 + engine : 0);
    cudnn_plan_release(&plan);
    CHECK_EQ(library.live, 0);
    return status == 0 ? engine : 0;
}

static void name_some(void)
{
    library = (struct library){.named = {[CUDNN_HEUR_MODE_A] = {6, 5},
                                         [CUDNN_HEUR_MODE_B] = {6, 8},
                                         [CUDNN_HEUR_MODE_FALLBACK] = {9}},
                               .fails_in = -1};
    library.no_order[6] = library.no_order[5] = true;
}

static void test_engines(void)
{
    char why[GRAPH_WHY];
    for (int backward = 0; backward < 2; backward++) {
        name_some();
        CHECK_EQ(engine_of(backward, false, why), 6);
        CHECK_EQ(engine_of(backward, true, why), 8);
        library.no_plan[8] = library.no_plan[6] = true;
        CHECK_EQ(engine_of(backward, false, why), 5);
        CHECK_EQ(engine_of(backward, true, why), 9);
        library.no_plan[9] = true;
        CHECK_EQ(engine_of(backward, true, why), 0);
        CHECK_HAS(why, "execution plan");
        library.no_order[8] = true;
        library.no_notes[9] = true; /* nobody knows */
        CHECK_EQ(engine_of(backward, true, why), 0);
        CHECK_HAS(why, "no engine whose sums have a fixed order");
    }
}

/* Each call fails in turn: there is a plan of an engine that says its order, or none; no descriptor is
 * left. */
static void test_failures(void)
{
    char why[GRAPH_WHY];
    int tried = 0, made = 0;
    for (bool failed = true; failed; tried++) {
        name_some();
        library.fails_in = tried;
        int engine = engine_of(true, true, why);
        failed = library.fails_in < 0;
        CHECK(engine == 8 || engine == 9 || (engine == 0 && why[0] != '\0'));
        made += engine != 0;
    }
    CHECK(tried > 300 && made > 0);
}

/* ---- a runtime without a GPU ---- */

static struct runtime {
    int not_ready;     /* queries until it is; below 0: never */
    int pending;       /* errors that nobody took */
    cudaError_t found; /* of cudaGetDevice */
    int events;
} runtime;

static cudaError_t query(void)
{
    if (runtime.not_ready == 0)
        return cudaSuccess;
    runtime.not_ready -= runtime.not_ready > 0;
    runtime.pending++;
    return cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return query();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return query();
}

cudaError_t cudaGetLastError(void)
{
    runtime.pending = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return runtime.found;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)attribute, (void)device;
    *value = 1 << 16;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    runtime.events++;
    *event = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    runtime.events--;
    return cudaSuccess;
}

static jmp_buf died;
static int death, asked;

static void note_death(int code)
{
    death = code;
    longjmp(died, 1);
}

static void peer_is_gone(void *arg)
{
    CHECK(arg == &asked);
    if (++asked == 3)
        die(FAIL_COMM, "a test: the peer is gone");
}

static void test_wait(void)
{
    struct kernel_context context = {.alive = peer_is_gone, .alive_arg = &asked};
    int somewhere = 0;
    runtime = (struct runtime){.not_ready = 5};
    CHECK(cuda_wait(&context, NULL, NULL, "counts") > 0);
    CHECK_EQ(runtime.pending, 0); /* a launch that follows sees no error */
    runtime.not_ready = 2;
    cuda_wait(&(struct kernel_context){0}, NULL, &somewhere, "input");
    CHECK_EQ(runtime.not_ready, 0);
    runtime.not_ready = -1;
    asked = death = 0;
    die_handler(note_death);
    if (setjmp(died) == 0)
        cuda_wait(&context, NULL, NULL, "counts");
    die_handler(NULL);
    CHECK_EQ(death, FAIL_COMM);
    CHECK_EQ(asked, 3);
}

/* ---- who meets whom at open ---- */

static struct meeting {
    char said[32]; /* a: agreed, g: gathered */
    int agrees, fails_at;
} meeting;

static void say(char what)
{
    size_t n = strlen(meeting.said);
    if (CHECK(n + 1 < sizeof meeting.said))
        meeting.said[n] = what;
}

/* Another rank fails before the agreement of this number. */
static int meet(void *arg, int rc)
{
    (void)arg;
    say('a');
    if (rc == 0 && ++meeting.agrees == meeting.fails_at)
        return fail(FAIL_CUDA, "a test: another rank");
    return rc;
}

static int gather(void *arg, const void *mine, size_t bytes, void **all, size_t *all_bytes)
{
    (void)arg;
    say('g');
    *all = must_alloc(bytes + 1, 1);
    memcpy(*all, mine, bytes);
    *all_bytes = bytes;
    return 0;
}

static void *no_stream(struct device *device, int stream)
{
    (void)device, (void)stream;
    return NULL;
}

static void open_set(int code, int fails_at, const char *said)
{
    static const struct device_type type = {.name = "fake", .native = no_stream};
    static const struct kernel_share share = {.gather = gather, .agree = meet};
    struct device device = {.type = &type};
    struct plan plan = {.sealed = true};
    struct kernel_context context = {.search = true, .share = &share};
    meeting = (struct meeting){.fails_at = fails_at};
    CHECK_EQ(kernels_cuda.open(&context, &plan, &device), code);
    kernels_cuda.close(&context);
    CHECK(strcmp(meeting.said, said) == 0);
    CHECK_EQ(runtime.events, 0);
    fail_clear();
}

static void test_meetings(void)
{
    runtime = (struct runtime){.found = cudaSuccess};
    open_set(0, 0, "aggagg");
    open_set(FAIL_CUDA, 1, "a");
    open_set(FAIL_CUDA, 2, "agga");
    runtime.found = cudaErrorNoDevice; /* this rank fails, and still tells */
    open_set(FAIL_CUDA, 0, "a");
}

int main(void)
{
    test_engines();
    test_failures();
    test_wait();
    test_meetings();
    return test_end();
}
