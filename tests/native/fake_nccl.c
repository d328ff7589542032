/* The functions of NCCL that the nccl engine calls. They note themselves: see fake_cuda.c.
 *
 * As NCCL does, it loads NCCL_PROFILER_PLUGIN (v5) with a communicator, and reports calls while the plugin's mask asks for them. At the first
 * call after that it writes to NCCL_DEBUG_FILE how ranks are connected. With FAKE_NO_PROFILER it is a release without the interface;
 * with FAKE_ASKED=fails or hangs a call does so while the plugin asks. With FAKE_SYMMETRIC calls run kernels over symmetric memory, as those
 * of NCCL 2.28 to 2.30: no task is reported, and the log names the kernel at NCCL_DEBUG_SUBSYS=TUNING. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

int fake_note(const char *format, ...);
void fake_set_version(int number);
int fake_reported(void);
void fake_hang(int on);

static int version = 22809, comm_count;

void fake_set_version(int number) { version = number; }

enum { COLL = 1 << 1, P2P = 1 << 2, GROUP_API = 1 << 8, COLL_API = 1 << 9 };
struct coll {
  uint64_t sequence;
  const char *func;
  handle send, recv;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels, warps;
  const char *algo, *proto;
  handle plan;
};
struct p2p {
  const char *func;
  handle buffer;
  const char *datatype;
  size_t count;
  int peer;
  uint8_t channels;
  handle plan;
};
struct event {
  uint64_t type;
  handle parent;
  int rank;
  union {
    struct coll coll;
    struct p2p p2p;
    struct {
      const char *func;
      size_t count;
      const char *datatype;
    } call;
  } of;
};
static struct profiler {
  const char *name;
  int (*init)(handle *context, uint64_t comm, int *mask, const char *name, int nodes, int ranks, int rank, handle logger);
  int (*start)(handle context, handle *event, struct event *descriptor);
  int (*stop)(handle event);
  handle state;
  int (*finalize)(handle context);
} *profiler;
static handle context;
static int mask, reported, chosen;
static FILE *log_file;
static int is_connected, is_reset, logs_choices;

/* How many operations the plugin has asked to know. */
int fake_reported(void) { return reported; }

/* How many operations the log has named the kernel of. */
int fake_chosen(void) { return chosen; }

static void open_log(void) {
  const char *file = getenv("NCCL_DEBUG_FILE"), *subsystems = getenv("NCCL_DEBUG_SUBSYS");
  if (log_file) fclose(log_file);
  log_file = file ? fopen(file, "w") : NULL;
  logs_choices = subsystems && strstr(subsystems, "TUNING");
  is_reset = 0;
}

static void log_line(int level, unsigned long subsystems, const char *place, int line, const char *format, ...) {
  if (is_reset) open_log();
  (void)level, (void)subsystems, (void)place, (void)line, (void)format;
}

void ncclResetDebugInit(void) { is_reset = 1; }

static void load_plugin(void) {
  const char *path = getenv("NCCL_PROFILER_PLUGIN");
  handle library = path && *path && !getenv("FAKE_NO_PROFILER") ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  profiler = library ? dlsym(library, "ncclProfiler_v5") : NULL;
  context = NULL;
  mask = 0;
  fake_hang(0);
  if (profiler && profiler->init(&context, 1, &mask, "fake", 1, 2, 0, (handle)log_line)) abort();
  open_log();
  is_connected = 0;
}

static handle started(struct event descriptor) {
  handle event = NULL;
  if (profiler->start(context, &event, &descriptor)) abort();
  return event;
}

static int say(int code, const char *func, size_t count, int sends) {
  if (log_file && !is_connected) fputs("h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n", log_file);
  const char *symmetric = getenv("FAKE_SYMMETRIC");
  if (log_file && symmetric && logs_choices && ++chosen) {
    const char *form = "h:1:1 [0] NCCL INFO %s [Symmetric]: %zu Bytes -> Kernel %s_AGxLL_R nchannels 3 nthreads 512 nWorks 1\n";
    fprintf(log_file, form, func, 4 * count, func);
  }
  if (log_file) fflush(log_file);
  is_connected = 1;
  if (!profiler || !(mask & COLL)) return code;
  const char *asked = getenv("FAKE_ASKED");
  if (asked && !strcmp(asked, "fails")) return 1;
  fake_hang(asked && !strcmp(asked, "hangs"));
  reported++;
  handle group = mask & GROUP_API ? started((struct event){.type = GROUP_API}) : NULL;
  handle call = mask & COLL_API ? started((struct event){.type = COLL_API, .parent = group, .of.call = {func, count, "ncclFloat32"}}) : NULL;
  handle task = NULL;
  if (sends) {
    task = started((struct event){.type = P2P, .parent = call, .of.p2p = {.func = func, .count = count, .peer = 1, .channels = 2}});
  } else if (!symmetric) {
    struct coll small = {.func = func, .count = count, .channels = 2, .algo = "TREE", .proto = "LL"};
    struct coll large = {.func = func, .count = count, .channels = 24, .algo = "NEW", .proto = "SIMPLE"};
    task = started((struct event){.type = COLL, .parent = call, .of.coll = count > 4 ? large : small});
  }
  if ((task && profiler->stop(task)) || profiler->stop(call) || profiler->stop(group)) abort();
  return code;
}

struct id {
  char bytes[128];
};

int ncclGetVersion(int *number) { return *number = version, 0; }
int ncclGetUniqueId(struct id *id) { return memset(id, 0, sizeof *id), 0; }
int ncclCommInitRankConfig(handle *comm, int ranks, struct id id, int rank, void *config) {
  load_plugin();
  return (void)ranks, (void)id, (void)rank, (void)config, *comm = (handle)(0xA000L + ++comm_count), 0;
}
int ncclCommDestroy(handle comm) { return (void)comm, 0; }
int ncclCommAbort(handle comm) { return (void)comm, 0; }
int ncclCommGetAsyncError(handle comm, int *error) { return (void)comm, *error = 0, 0; }
int ncclMemAlloc(void **address, size_t size) { return *address = malloc(size), 0; }
int ncclMemFree(void *address) { return free(address), 0; }
const char *ncclGetErrorString(int result) { return result ? "fake failure" : "no error"; }
const char *ncclGetLastError(handle comm) { return (void)comm, ""; }

int ncclGroupStart(void) { return fake_note("ncclGroupStart()"); }
int ncclGroupEnd(void) { return fake_note("ncclGroupEnd()"); }

#define PLAIN(name)                                                                                                        \
  int name(handle send, handle recv, size_t count, int dtype, handle comm, handle stream) {                                \
    int code = fake_note(#name "(%p, %p, %zu, %d, %p, %p)", send, recv, count, dtype, comm, stream);                       \
    return say(code, #name + 4, count, 0);                                                                                 \
  }
#define ONE_NUMBER(name)                                                                                                   \
  int name(handle send, handle recv, size_t count, int dtype, int number, handle comm, handle stream) {                    \
    int code = fake_note(#name "(%p, %p, %zu, %d, %d, %p, %p)", send, recv, count, dtype, number, comm, stream);           \
    return say(code, #name + 4, count, 0);                                                                                 \
  }
#define PEER(name)                                                                                                         \
  int name(handle buffer, size_t count, int dtype, int peer, handle comm, handle stream) {                                 \
    int code = fake_note(#name "(%p, %zu, %d, %d, %p, %p)", buffer, count, dtype, peer, comm, stream);                     \
    return say(code, #name + 4, count, 1);                                                                                 \
  }

PLAIN(ncclAllGather)
PLAIN(ncclAlltoAll)
ONE_NUMBER(ncclAllReduce)
ONE_NUMBER(ncclReduceScatter)
ONE_NUMBER(ncclBroadcast)
ONE_NUMBER(ncclGather)
ONE_NUMBER(ncclScatter)
PEER(ncclSend)
PEER(ncclRecv)

int ncclReduce(handle send, handle recv, size_t count, int dtype, int op, int root, handle comm, handle stream) {
  return fake_note("ncclReduce(%p, %p, %zu, %d, %d, %d, %p, %p)", send, recv, count, dtype, op, root, comm, stream);
}
int ncclRedOpCreatePreMulSum(int *op, const float *scalar, int dtype, int residence, handle comm) {
  *op = 77;
  return fake_note("ncclRedOpCreatePreMulSum(%g, %d, %d, %p)", *scalar, dtype, residence, comm);
}
int ncclRedOpDestroy(int op, handle comm) { return fake_note("ncclRedOpDestroy(%d, %p)", op, comm); }
