/* NCCL's own time, from C: the loop that nccl-tests and busbw's classic timing run, without either. One process per GPU.
 *
 *   nccl_loop [LARGEST [RANKS [all_reduce | hypercube]]]       by default 65536 2 all_reduce; RANKS is 1 or 2
 *
 * Prints `bytes out-of-place-us in-place-us` for 8 B to LARGEST, float sum, 20 iterations after one untimed operation, averaged over the
 * ranks. Iteration i works at offset size * (i mod largest / size), as nccl-tests moves through its buffers, so LARGEST matters.
 * Build it with the NCCL that is to be measured:
 *   gcc -O2 nccl_loop.c -o nccl_loop -I$CUDA/include -I$NCCL/include -L$CUDA/lib64 -L$NCCL/lib -lcudart -l:libnccl.so.2
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

enum { MAX_RANKS = 2, ITERS = 20, PLACEMENTS = 2 };

static int ranks = MAX_RANKS, hypercube;

struct shared {
  volatile int ready, arrived;
  ncclUniqueId id;
  double seconds[MAX_RANKS];
};

static void barrier(struct shared *s) {
  int round = __sync_fetch_and_add(&s->arrived, 1) / ranks;
  while (s->arrived < (round + 1) * ranks) {
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* One operation that receives `size` bytes. A hypercube copies its own part, then exchanges all it holds with one peer after another. */
static void operate(char *from, char *to, size_t size, int rank, ncclComm_t comm, cudaStream_t stream) {
  size_t part = size / ranks;
  if (!hypercube) {
    CHECK(ncclAllReduce(from, to, size / 4, ncclFloat, ncclSum, comm, stream));
    return;
  }
  if (to + rank * part != from) CHECK(cudaMemcpyAsync(to + rank * part, from, part, cudaMemcpyDeviceToDevice, stream));
  for (int step = 1; step < ranks; step *= 2) {
    int peer = rank ^ step, held = rank & -step;
    CHECK(ncclGroupStart());
    CHECK(ncclSend(to + held * part, step * part / 4, ncclFloat, peer, comm, stream));
    CHECK(ncclRecv(to + (held ^ step) * part, step * part / 4, ncclFloat, peer, comm, stream));
    CHECK(ncclGroupEnd());
  }
}

static void measure(int rank, size_t largest, struct shared *s) {
  ncclComm_t comm;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  cudaStream_t stream;
  char *send, *recv;
  CHECK(cudaSetDevice(rank));
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&s->id));
    s->ready = 1;
  }
  while (!s->ready) {
  }
  config.nvlinkCentricSched = 1; /* as nccl-tests and busbw set it */
  CHECK(ncclCommInitRankConfig(&comm, ranks, s->id, rank, &config));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(ncclMemAlloc((void **)&send, largest));
  CHECK(ncclMemAlloc((void **)&recv, largest));
  for (size_t size = 8; size <= largest; size *= 2) {
    for (int i = 0; i < 5; i++) operate(send, recv, size, rank, comm, stream);
    CHECK(cudaStreamSynchronize(stream));
  }
  for (size_t size = 8; size <= largest; size *= 2) {
    double micro[PLACEMENTS] = {0};
    for (int in_place = 0; in_place < PLACEMENTS; in_place++) {
      char *from = !in_place ? send : hypercube ? recv + rank * (size / ranks) : recv;
      operate(from, recv, size, rank, comm, stream);
      CHECK(cudaStreamSynchronize(stream));
      barrier(s);
      double start = now();
      for (int i = 0; i < ITERS; i++) {
        size_t shift = size * (i % (largest / size));
        operate(from + shift, recv + shift, size, rank, comm, stream);
      }
      while (cudaStreamQuery(stream) == cudaErrorNotReady) {
      }
      s->seconds[rank] = (now() - start) / ITERS;
      barrier(s);
      for (int r = 0; r < ranks; r++) micro[in_place] += 1e6 * s->seconds[r] / ranks;
      barrier(s);
    }
    if (rank == 0) printf("%zu %.3f %.3f\n", size, micro[0], micro[1]);
  }
  fflush(stdout);
  CHECK(ncclCommDestroy(comm));
}

int main(int argc, char **argv) {
  size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : 65536;
  struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ranks = argc > 2 ? atoi(argv[2]) : MAX_RANKS;
  hypercube = argc > 3 && !strcmp(argv[3], "hypercube");
  if (ranks < 1 || ranks > MAX_RANKS) return 2;
  pid_t other = ranks > 1 ? fork() : -1;
  measure(other == 0, largest, s);
  if (other <= 0) return 0;
  int status = 0;
  waitpid(other, &status, 0);
  return status != 0;
}
