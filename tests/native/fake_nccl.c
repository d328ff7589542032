/* The functions of NCCL that the nccl engine calls. They note themselves: see fake_cuda.c. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

int fake_note(const char *format, ...);
void fake_set_version(int number);

static int version = 22809, comm_count;

void fake_set_version(int number) { version = number; }

struct id {
  char bytes[128];
};

int ncclGetVersion(int *number) { return *number = version, 0; }
int ncclGetUniqueId(struct id *id) { return memset(id, 0, sizeof *id), 0; }
int ncclCommInitRankConfig(handle *comm, int ranks, struct id id, int rank, void *config) {
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
    return fake_note(#name "(%p, %p, %zu, %d, %p, %p)", send, recv, count, dtype, comm, stream);                           \
  }
#define ONE_NUMBER(name)                                                                                                   \
  int name(handle send, handle recv, size_t count, int dtype, int number, handle comm, handle stream) {                    \
    return fake_note(#name "(%p, %p, %zu, %d, %d, %p, %p)", send, recv, count, dtype, number, comm, stream);               \
  }
#define PEER(name)                                                                                                         \
  int name(handle buffer, size_t count, int dtype, int peer, handle comm, handle stream) {                                 \
    return fake_note(#name "(%p, %zu, %d, %d, %p, %p)", buffer, count, dtype, peer, comm, stream);                         \
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
