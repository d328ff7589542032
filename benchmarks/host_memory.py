"""How fast a GPU and its host exchange data, how fast the host's memory is, and how long pinning
takes.

Copies each way and in both directions at once by size, from pinned and from pageable memory; copies
    on the host by number of cores (C with
OpenMP, needs gcc); allocation of pinned memory. Prints a table and writes JSON. Run it on an
    otherwise idle machine:
  python3 benchmarks/host_memory.py result.json
"""

import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

MIB, GIB = 2**20, 2**30
SIZES = (4 * 2**10, 64 * 2**10, MIB, 16 * MIB, 256 * MIB, GIB)
ROUNDS = 7
CORES = (1, 2, 4, 8, 16, 32)
BYTES_OF_HOST = 2 * GIB
SOURCE = r"""
#include <omp.h>
#include <stddef.h>
#include <string.h>
/* What an update of fp32 weight and moments with bf16 gradient in and bf16 weight out moves:
   28 B an element. */
double update(int threads, size_t n, const unsigned short *g, float *p, float *m, float *v,
              unsigned short *w) {
  double start = omp_get_wtime();
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t i = 0; i < n; i++) {
    m[i] += g[i]; v[i] += m[i]; p[i] += v[i]; w[i] = (unsigned short)p[i];
  }
  return omp_get_wtime() - start;
}
double copy(int threads, size_t n, const char *from, char *to) {
  double start = omp_get_wtime();
  #pragma omp parallel num_threads(threads)
  {
    size_t k = omp_get_num_threads(), i = omp_get_thread_num(), part = n / k;
    memcpy(to + i * part, from + i * part, part);
  }
  return omp_get_wtime() - start;
}
void touch(int threads, size_t n, char *to) {
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t i = 0; i < n; i += 4096) to[i] = 1;
}
"""


def compiled() -> ctypes.CDLL:
    """The loops in C."""
    folder = Path(tempfile.mkdtemp())
    (folder / "stream.c").write_text(SOURCE)
    subprocess.run(
        [
            "gcc",
            "-O3",
            "-march=native",
            "-fopenmp",
            "-shared",
            "-fPIC",
            "-o",
            folder / "s.so",
            folder / "stream.c",
        ],
        check=True,
    )
    library = ctypes.CDLL(str(folder / "s.so"))
    library.update.restype = library.copy.restype = ctypes.c_double
    return library


def timed(*copies: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Seconds of the copies (from, to), each on a stream of its own, started together."""
    streams = [torch.cuda.Stream() for _ in copies]
    torch.cuda.synchronize()
    start = time.perf_counter()
    for stream, (source, target) in zip(streams, copies, strict=True):
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def rate(bytes_: int, *copies: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
    """Least, median and largest bytes per second of ROUNDS; repeated for small sizes, since a
    start takes some us.
    """
    timed(*copies)
    many = max(1, min(200, 64 * MIB // bytes_))
    rates = sorted(
        bytes_ / statistics.median(timed(*copies) for _ in range(many)) for _ in range(ROUNDS)
    )
    return [rates[0], statistics.median(rates), rates[-1]]


def copies(result: dict) -> None:
    """Copies between host and GPU, by size."""
    device = [torch.empty(SIZES[-1], dtype=torch.uint8, device="cuda") for _ in range(2)]
    pinned = [torch.empty(SIZES[-1], dtype=torch.uint8, pin_memory=True).fill_(i) for i in range(2)]
    pageable = [torch.empty(SIZES[-1], dtype=torch.uint8).fill_(i) for i in range(2)]
    for size in SIZES:
        near, far = [one[:size] for one in device], [one[:size] for one in pinned]
        row = {
            "h2d": rate(size, (far[0], near[0])),
            "d2h": rate(size, (near[1], far[1])),
            "both": rate(2 * size, (far[0], near[0]), (near[1], far[1])),
            "pageable h2d": rate(size, (pageable[0][:size], near[0])),
            "pageable d2h": rate(size, (near[1], pageable[1][:size])),
        }
        result["copies"][size] = row
        print(
            f"{size:>12} "
            + "  ".join(f"{name} {value[1] / 1e9:6.2f}" for name, value in row.items()),
            flush=True,
        )
    near, far = device[0][: 256 * MIB], pinned[0][: 256 * MIB]
    result["chunks of 256 MiB, H2D"] = {}
    for chunk in (MIB, 4 * MIB, 16 * MIB, 64 * MIB):
        seconds = []
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for at in range(0, 256 * MIB, chunk):
                near[at : at + chunk].copy_(far[at : at + chunk], non_blocking=True)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        result["chunks of 256 MiB, H2D"][chunk] = 256 * MIB / statistics.median(seconds)
    print(
        "chunks of 256 MiB",
        {k: round(v / 1e9, 2) for k, v in result["chunks of 256 MiB, H2D"].items()},
        flush=True,
    )


def host(result: dict, library: ctypes.CDLL) -> None:
    """Updates and copies in host memory, by number of cores."""
    elements = BYTES_OF_HOST // 4
    views = [
        torch.zeros(elements, dtype=kind)
        for kind in (torch.bfloat16, torch.float32, torch.float32, torch.float32, torch.bfloat16)
    ]
    pointers = [ctypes.c_void_p(view.data_ptr()) for view in views]
    have = len(os.sched_getaffinity(0))
    for cores in [one for one in CORES if one <= have]:
        updates = [library.update(cores, ctypes.c_size_t(elements), *pointers) for _ in range(4)]
        moves = [
            library.copy(cores, ctypes.c_size_t(BYTES_OF_HOST), pointers[1], pointers[2])
            for _ in range(4)
        ]
        row = {
            "update, elements/s": elements / min(updates),
            "copy, bytes read and written/s": 2 * BYTES_OF_HOST / min(moves),
        }
        result["host"][cores] = row
        update, copy = row.values()
        print(
            f"{cores:>3} cores: update {update / 1e9:6.3f} G/s = {28 * update / 1e9:6.1f} GB/s,"
            f" copy {copy / 1e9:6.1f} GB/s",
            flush=True,
        )


def pinning(result: dict, library: ctypes.CDLL) -> None:
    """Allocation, first touch and registration of pinned memory."""
    runtime = torch.cuda.cudart()
    for size in (GIB, 4 * GIB, 16 * GIB):
        start = time.perf_counter()
        block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        allocated = time.perf_counter() - start
        del block
        torch._C._host_emptyCache()
        memory = mmap.mmap(-1, size)
        where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        start = time.perf_counter()
        library.touch(
            min(16, len(os.sched_getaffinity(0))), ctypes.c_size_t(size), ctypes.c_void_p(where)
        )
        touched = time.perf_counter() - start
        start = time.perf_counter()
        error = runtime.cudaHostRegister(where, size, 0)
        registered = time.perf_counter() - start
        runtime.cudaHostUnregister(where)
        row = {
            "cudaHostAlloc": size / allocated,
            "first touch": size / touched,
            "cudaHostRegister": size / registered,
            "error": int(error),
        }
        result["pinning"][size] = row
        print(
            f"pin {size // GIB:>3} GiB: "
            + ", ".join(f"{name} {value / 1e9:.2f}" for name, value in row.items()),
            flush=True,
        )


def main() -> None:
    """All measurements; the file that is named gets them as JSON."""
    memory = Path("/proc/meminfo").read_text(encoding="ascii").split()[1]
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cores": len(os.sched_getaffinity(0)),
        "memory KiB": memory,
    }
    result |= {"copies": {}, "host": {}, "pinning": {}}
    print(result["gpu"], result["cores"], "cores", int(memory) // 2**20, "GiB", "GB/s:")
    library = compiled()
    copies(result)
    host(result, library)
    pinning(result, library)
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
