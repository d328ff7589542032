/* NCCL's own time, from C: the loop that nccl-tests and busbw's classic timing run, without either. Two ranks, one process a GPU.
 *
 * Prints `bytes out-of-place-us in-place-us` for 8 B to 64 KiB (or to the bytes given), all_reduce of float sum, 20 iterations after one
 * untimed operation, averaged over both ranks. Iteration i works at offset size * (i mod largest / size), as nccl-tests moves through its
 * buffers, so `largest` matters. Build it with the NCCL that is to be measured:
 *   gcc -O2 nccl_loop.c -o nccl_loop -I$CUDA/include -I$NCCL/include -L$CUDA/lib64 -L$NCCL/lib -lcudart -l:libnccl.so.2
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
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

enum { RANKS = 2, ITERS = 20, PLACES = 2 };

struct shared {
  volatile int ready, arrived;
  ncclUniqueId id;
  double seconds[RANKS];
};

static void barrier(struct shared *s) {
  int round = __sync_fetch_and_add(&s->arrived, 1) / RANKS;
  while (s->arrived < (round + 1) * RANKS) {
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
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
  CHECK(ncclCommInitRankConfig(&comm, RANKS, s->id, rank, &config));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(ncclMemAlloc((void **)&send, largest));
  CHECK(ncclMemAlloc((void **)&recv, largest));
  for (size_t size = 8; size <= largest; size *= 2) {
    for (int i = 0; i < 5; i++) CHECK(ncclAllReduce(send, recv, size / 4, ncclFloat, ncclSum, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  for (size_t size = 8; size <= largest; size *= 2) {
    double micro[PLACES];
    for (int in_place = 0; in_place < PLACES; in_place++) {
      char *from = in_place ? recv : send;
      CHECK(ncclAllReduce(from, recv, size / 4, ncclFloat, ncclSum, comm, stream));
      CHECK(cudaStreamSynchronize(stream));
      barrier(s);
      double start = now();
      for (int i = 0; i < ITERS; i++) {
        size_t shift = size * (i % (largest / size));
        CHECK(ncclAllReduce(from + shift, recv + shift, size / 4, ncclFloat, ncclSum, comm, stream));
      }
      while (cudaStreamQuery(stream) == cudaErrorNotReady) {
      }
      s->seconds[rank] = (now() - start) / ITERS;
      barrier(s);
      micro[in_place] = 1e6 * (s->seconds[0] + s->seconds[1]) / RANKS;
      barrier(s);
    }
    if (rank == 0) printf("%zu %.2f %.2f\n", size, micro[0], micro[1]);
  }
  fflush(stdout);
  CHECK(ncclCommDestroy(comm));
}

int main(int argc, char **argv) {
  size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : 65536;
  struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t other = fork();
  measure(other == 0, largest, s);
  if (other == 0) return 0;
  int status = 0;
  waitpid(other, &status, 0);
  return status != 0;
}
