/* A libcuda.so.1 without a GPU, for the tests of the profiler plugin: the clock of each stream goes on only when
 * fake_run says that a kernel ran on it, so that every event has a known time. The functions whose names begin with
 * fake_ are those of the tests. A call that would break a capture, or one in the wrong context, returns an error. */

#include <pthread.h>
#include <stdint.h>

#define STREAMS 64
#define EVENTS 65536
#define CONTEXTS 4

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600, UNSUPPORTED = 900 };
enum { GLOBAL_MODE = 0, RELAXED_MODE = 2 };

struct event {
    uintptr_t context;
    double ns;
    int recorded;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS];
static double clocks[STREAMS];
static int captured[STREAMS], events_created, calls, failing, held;
static __thread uintptr_t current;
static __thread int mode = GLOBAL_MODE;

static int any_captured(void) {
    for (int at = 0; at < STREAMS; at++) {
        if (captured[at]) return 1;
    }
    return 0;
}

/* What the next driver calls begin with: counted, and failed if a test wants it. */
static int begin(void) {
    calls++;
    return failing;
}

static struct event *event(void *handle) {
    uintptr_t at = (uintptr_t)handle;
    return at >= 1 && at <= (uintptr_t)events_created ? &events[at - 1] : 0;
}

void fake_enter(uintptr_t context) { current = context; }
uintptr_t fake_current(void) { return current; }
void fake_capture(uintptr_t stream, int status) { captured[stream % STREAMS] = status; }
void fake_hold(int hold) { held = hold; }
void fake_fail(int result) { failing = result; }
int fake_events(void) { return events_created; }
int fake_calls(void) { return calls; }

void fake_run(uintptr_t stream, double ns) {
    pthread_mutex_lock(&mutex);
    clocks[stream % STREAMS] += ns;
    pthread_mutex_unlock(&mutex);
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)(uintptr_t)(device + 1);
    return SUCCESS;
}

int cuCtxGetId(void *context, unsigned long long *id) {
    *id = (uintptr_t)context;
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    *context = (void *)current;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    current = (uintptr_t)context;
    return SUCCESS;
}

int cuThreadExchangeStreamCaptureMode(int *other) {
    int before = mode;
    mode = *other;
    *other = before;
    return SUCCESS;
}

int cuStreamIsCapturing(void *stream, int *status) {
    *status = captured[(uintptr_t)stream % STREAMS];
    return SUCCESS;
}

int cuEventCreate(void **handle, unsigned flags) {
    pthread_mutex_lock(&mutex);
    int result = begin();
    if (!result && (flags || !current || events_created == EVENTS)) result = INVALID_VALUE;
    if (!result) {
        events[events_created++].context = current;
        *handle = (void *)(uintptr_t)events_created;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

int cuEventRecord(void *handle, void *stream) {
    pthread_mutex_lock(&mutex);
    int result = begin();
    struct event *found = event(handle);
    uintptr_t at = (uintptr_t)stream % STREAMS;
    if (!result && !found) result = INVALID_HANDLE;
    if (!result && captured[at]) result = UNSUPPORTED;
    /* Streams of context n are those with stream % CONTEXTS == n. */
    if (!result && found->context % CONTEXTS != at % CONTEXTS) result = INVALID_HANDLE;
    if (!result) {
        found->ns = clocks[at];
        found->recorded = 1;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

int cuEventQuery(void *handle) {
    pthread_mutex_lock(&mutex);
    int result = begin();
    struct event *found = event(handle);
    if (!result && !found) result = INVALID_HANDLE;
    if (!result && any_captured() && mode != RELAXED_MODE) result = UNSUPPORTED;
    if (!result && current != found->context) result = INVALID_CONTEXT;
    if (!result && held) result = NOT_READY;
    pthread_mutex_unlock(&mutex);
    return result;
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
    pthread_mutex_lock(&mutex);
    int result = begin();
    struct event *first = event(from), *last = event(to);
    if (!result && (!first || !last || !first->recorded || !last->recorded)) result = INVALID_HANDLE;
    if (!result && (first->context != last->context || current != first->context)) result = INVALID_CONTEXT;
    if (!result) *ms = (float)((last->ns - first->ns) / 1e6);
    pthread_mutex_unlock(&mutex);
    return result;
}
