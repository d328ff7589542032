"""What each GPU does under load.

`python -m busbw.check.load.gpu_copies_run SECONDS` prints a UsableGpus as JSON.

GPUs run one at a time: GPUs under one PCIe switch share its uplink, and GPUs of a socket share its
memory. With all at once, the shared link would hide a slow one.
"""

import os
import sys
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from busbw.check.load.gpu_copies import Copies, GpuLoad, UsableGpus
from busbw.core.errors import BusbwError
from busbw.engines.cuda_kernels import HostCopies
from busbw.engines.cuda_runtime import CudaGpu, device_count
from busbw.host.gpu_samples import Sampler
from busbw.host.pci import device_directory
from busbw.host.settings import cpu_set
from busbw.host.source import Unavailable

WARM_UP_S = 0.5  # until an idle link and clock speed up
ALLOWED_CPUS = os.sched_getaffinity(0)
DIRECTIONS = {"to the GPU": True, "from the GPU": False}


def measure_gpus(seconds: float) -> UsableGpus:
    """Half of `seconds` in each direction for each GPU that this process may use."""
    try:
        return UsableGpus(
            tuple(_gpu(CudaGpu(index), seconds / 2) for index in range(device_count()))
        )
    except (BusbwError, Unavailable) as error:
        return UsableGpus(reason=str(error))


def _gpu(gpu: CudaGpu, seconds: float) -> GpuLoad:
    _run_near(f"{gpu.bus}.0")
    with closing(HostCopies(gpu)) as copies, closing(Sampler(gpu.bus)) as sampler:
        done = []
        for direction, to_device in DIRECTIONS.items():
            copies.run(WARM_UP_S, to_device=to_device)
            with sampler.sampling() as samples:
                rate = copies.run(seconds, to_device=to_device)
            done.append(Copies(direction, rate, tuple(samples)))
        # CUDA counts in another order than NVML.
        number = gpu.index if sampler.index is None else sampler.index
        return GpuLoad(
            index=number,
            bus_id=f"{gpu.bus}.0",
            name=gpu.name,
            gen_max=sampler.gen_max,
            width_max=sampler.width_max,
            sm_max_mhz=sampler.sm_max_mhz,
            copies=tuple(done),
        )


def _run_near(bus_id: str) -> None:
    """Run on the CPUs near the GPU, if allowed, so that the pinned memory is there too."""
    with suppress(OSError):
        local = (
            cpu_set(Path(f"{device_directory(bus_id)}/local_cpulist").read_text().strip())
            & ALLOWED_CPUS
        )
        os.sched_setaffinity(0, local or ALLOWED_CPUS)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure_gpus(float(sys.argv[1]))).decode())
