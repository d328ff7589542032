/* NCCL's own time, from C: the loop that nccl-tests and busbw's classic timing run, without either. One process per GPU.
 *
 *   nccl_loop [LARGEST [RANKS [COLLECTIVE | all]]]       by default 65536 2 all_reduce; RANKS is 1 to 8
 *
 * Prints `bytes out-of-place-us in-place-us` for 8 B to LARGEST, float sum, 20 iterations after one untimed operation, averaged over the
 * ranks; with `all` the name of each collective comes first. Sizes that give a rank less than 16 B of its part are left out. Iteration i
 * works at offset size * (i mod largest / size), as nccl-tests moves through its buffers, so LARGEST matters.
 * Build it with the NCCL that is to be measured, 2.28 or newer:
 *   gcc -O2 nccl_loop.c -o nccl_loop -I$CUDA/include -I$NCCL/include -L$CUDA/lib64 -L$NCCL/lib -lcudart -l:libnccl.so.2
 * With -shared -fPIC -DNCCL_LOOP_LIBRARY it is the library of small_sizes.py, which has communicators of its own.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                        \
  do {                                                                                                     \
    int status = (int)(call);                                                                              \
    if (status) {                                                                                          \
      fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, status);                              \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

enum { MAX_RANKS = 8, ITERS = 20, PLACEMENTS = 2, ALIGNED_BYTES = 16 };

/* In the order of `names`; small_sizes.py has it too. */
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALLTOALL, GATHER, SCATTER, SENDRECV, HYPERCUBE, ALLTOALLV };

/* A rank, and what it runs. `matrix` has the elements from each rank to each rank, for alltoallv. */
struct rank {
  int collective, rank, ranks;
  const size_t *matrix;
  ncclComm_t comm;
  cudaStream_t stream;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Whether each rank has a part of the buffer. */
static int is_divided(int collective) {
  return collective == ALL_GATHER || collective == REDUCE_SCATTER || collective == ALLTOALL || collective == GATHER ||
         collective == SCATTER || collective == HYPERCUBE;
}

/* A hypercube copies its own part, then exchanges all it holds with one peer after another. */
static void hypercube(const struct rank *r, char *from, char *to, size_t part) {
  if (to + r->rank * part != from)
    CHECK(cudaMemcpyAsync(to + r->rank * part, from, part, cudaMemcpyDeviceToDevice, r->stream));
  for (int step = 1; step < r->ranks; step *= 2) {
    int peer = r->rank ^ step, held = r->rank & -step;
    CHECK(ncclGroupStart());
    CHECK(ncclSend(to + held * part, step * part / 4, ncclFloat, peer, r->comm, r->stream));
    CHECK(ncclRecv(to + (held ^ step) * part, step * part / 4, ncclFloat, peer, r->comm, r->stream));
    CHECK(ncclGroupEnd());
  }
}

static void sendrecv(const struct rank *r, char *from, char *to, size_t count) {
  int ranks = r->ranks;
  CHECK(ncclGroupStart());
  CHECK(ncclSend(from, count, ncclFloat, (r->rank + 1) % ranks, r->comm, r->stream));
  CHECK(ncclRecv(to, count, ncclFloat, (r->rank - 1 + ranks) % ranks, r->comm, r->stream));
  CHECK(ncclGroupEnd());
}

static void alltoallv(const struct rank *r, char *from, char *to) {
  size_t sent = 0, received = 0;
  CHECK(ncclGroupStart());
  for (int peer = 0; peer < r->ranks; peer++) {
    size_t to_peer = r->matrix[r->rank * r->ranks + peer], from_peer = r->matrix[peer * r->ranks + r->rank];
    if (to_peer) CHECK(ncclSend(from + 4 * sent, to_peer, ncclFloat, peer, r->comm, r->stream));
    if (from_peer) CHECK(ncclRecv(to + 4 * received, from_peer, ncclFloat, peer, r->comm, r->stream));
    sent += to_peer, received += from_peer;
  }
  CHECK(ncclGroupEnd());
}

/* One operation whose larger buffer has `size` bytes. */
static void operate(const struct rank *r, char *from, char *to, size_t size) {
  size_t part = size / r->ranks, count = (is_divided(r->collective) ? part : size) / 4;
  ncclComm_t comm = r->comm;
  cudaStream_t stream = r->stream;
  switch (r->collective) {
  case ALL_REDUCE: CHECK(ncclAllReduce(from, to, count, ncclFloat, ncclSum, comm, stream)); break;
  case ALL_GATHER: CHECK(ncclAllGather(from, to, count, ncclFloat, comm, stream)); break;
  case REDUCE_SCATTER: CHECK(ncclReduceScatter(from, to, count, ncclFloat, ncclSum, comm, stream)); break;
  case BROADCAST: CHECK(ncclBroadcast(from, to, count, ncclFloat, 0, comm, stream)); break;
  case REDUCE: CHECK(ncclReduce(from, to, count, ncclFloat, ncclSum, 0, comm, stream)); break;
  case ALLTOALL: CHECK(ncclAlltoAll(from, to, count, ncclFloat, comm, stream)); break;
  case GATHER: CHECK(ncclGather(from, to, count, ncclFloat, 0, comm, stream)); break;
  case SCATTER: CHECK(ncclScatter(from, to, count, ncclFloat, 0, comm, stream)); break;
  case SENDRECV: sendrecv(r, from, to, count); break;
  case HYPERCUBE: hypercube(r, from, to, part); break;
  case ALLTOALLV: alltoallv(r, from, to); break;
  }
}

/* In place, as in nccl-tests, both buffers are the second one; a rank's part is at its place in the other's buffer. */
static void place(const struct rank *r, size_t size, int in_place, char **from, char **to) {
  size_t offset = r->rank * (size / r->ranks);
  if (!in_place) return;
  *from = *to;
  if (r->collective == ALL_GATHER || r->collective == GATHER || r->collective == HYPERCUBE) *from += offset;
  if (r->collective == REDUCE_SCATTER || r->collective == SCATTER) *to += offset;
}

/* The untimed operation; the caller's ranks meet behind it. */
void nccl_loop_first(const struct rank *r, char *from, char *to, size_t size, int in_place) {
  place(r, size, in_place, &from, &to);
  operate(r, from, to, size);
  CHECK(cudaStreamSynchronize(r->stream));
}

/* Seconds of one of `iters` operations: to enqueue it, and until all are done. */
void nccl_loop_timed(const struct rank *r, char *from, char *to, size_t size, size_t largest, int in_place, int iters,
                     double seconds[2]) {
  size_t places = largest / size;
  place(r, size, in_place, &from, &to);
  double start = now();
  for (int i = 0; i < iters; i++) {
    size_t shift = size * (i % places);
    operate(r, from + shift, to + shift, size);
  }
  seconds[0] = (now() - start) / iters;
  while (cudaStreamQuery(r->stream) == cudaErrorNotReady) {
  }
  seconds[1] = (now() - start) / iters;
}

#ifndef NCCL_LOOP_LIBRARY

static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",  "alltoall",
                                    "gather",     "scatter",    "sendrecv",       "hypercube", "alltoallv"};

struct shared {
  volatile int ready, arrived;
  ncclUniqueId id;
  double seconds[MAX_RANKS];
};

static int ranks = 2;

static void barrier(struct shared *s) {
  int round = __sync_fetch_and_add(&s->arrived, 1) / ranks;
  while (s->arrived < (round + 1) * ranks) {
  }
}

/* A collective of all sizes. */
static void sweep(const struct rank *r, char *send, char *recv, size_t largest, struct shared *s, int named) {
  size_t smallest = is_divided(r->collective) ? (size_t)ALIGNED_BYTES * ranks : 8;
  for (size_t size = smallest; size <= largest; size *= 2)
    for (int i = 0; i < 5; i++) nccl_loop_first(r, send, recv, size, 0);
  for (size_t size = smallest; size <= largest; size *= 2) {
    double micro[PLACEMENTS] = {0};
    for (int in_place = 0; in_place < PLACEMENTS; in_place++) {
      double seconds[2];
      nccl_loop_first(r, send, recv, size, in_place);
      barrier(s);
      nccl_loop_timed(r, send, recv, size, largest, in_place, ITERS, seconds);
      s->seconds[r->rank] = seconds[1];
      barrier(s);
      for (int other = 0; other < ranks; other++) micro[in_place] += 1e6 * s->seconds[other] / ranks;
      barrier(s);
    }
    if (r->rank) continue;
    if (named) printf("%s ", names[r->collective]);
    printf("%zu %.3f %.3f\n", size, micro[0], micro[1]);
  }
  fflush(stdout);
}

static void measure(int rank, size_t largest, const char *name, struct shared *s) {
  struct rank r = {.rank = rank, .ranks = ranks};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  char *send, *recv;
  CHECK(cudaSetDevice(rank));
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&s->id));
    s->ready = 1;
  }
  while (!s->ready) {
  }
  config.nvlinkCentricSched = 1; /* as nccl-tests and busbw set it */
  CHECK(ncclCommInitRankConfig(&r.comm, ranks, s->id, rank, &config));
  CHECK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  CHECK(ncclMemAlloc((void **)&send, largest));
  CHECK(ncclMemAlloc((void **)&recv, largest));
  int named = !strcmp(name, "all");
  for (r.collective = 0; r.collective < ALLTOALLV; r.collective++) {
    int has_ranks = r.collective != HYPERCUBE || !(ranks & (ranks - 1));
    if (has_ranks && (named || !strcmp(name, names[r.collective]))) sweep(&r, send, recv, largest, s, named);
  }
  CHECK(ncclCommDestroy(r.comm));
}

int main(int argc, char **argv) {
  size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : 65536;
  struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (argc > 2) ranks = atoi(argv[2]);
  if (ranks < 1 || ranks > MAX_RANKS) return 2;
  int rank = 0, failed = 0;
  for (int other = 1; other < ranks && !rank; other++)
    if (fork() == 0) rank = other;
  measure(rank, largest, argc > 3 ? argv[3] : names[ALL_REDUCE], s);
  if (rank) return 0;
  for (int other = 1, status; other < ranks; other++) {
    wait(&status);
    failed |= status;
  }
  return failed != 0;
}

#endif
