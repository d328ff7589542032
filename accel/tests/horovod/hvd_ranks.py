"""`hvd_ranks.py FOLDER RANKS HOSTS MODULE CONTRACT...`, see jobs.py: each rank is a fork that runs
all and writes FOLDER/<rank>.out.

A process of its own keeps the store, as torchrun's agent does.
"""

import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[3] / "tests" / "ranks"))
import ranks

import busbw_accel.horovod.torch as hvd


def rank(
    folder: Path, number: int, size: int, hosts: int, port: int, module: str, names: list[str]
) -> None:
    """Join the job, run, leave; never returns."""
    ranks.redirect(folder, number)
    host, of_host = number * hosts // size, size // hosts
    os.environ |= {
        "HOROVOD_RANK": str(number),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(number % of_host),
        "HOROVOD_LOCAL_SIZE": str(of_host),
        "HOROVOD_HOSTNAME": f"host{host}",
        "NCCL_HOSTID": f"host{host}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    output, code = {}, 0
    try:
        for name in names:
            hvd.init()
            torch.manual_seed(0)
            try:
                output[name] = getattr(sys.modules[module], name)()
            except Exception:
                output[name], code = {"failed": traceback.format_exc()}, 1
            if hvd.is_initialized():
                hvd.barrier()
                hvd.shutdown()
            if left := gloo_threads():
                output[name], code = (
                    {"failed": f"{left} of Gloo's threads are left after shutdown"},
                    1,
                )
    except BaseException:
        traceback.print_exc()
        code = 1
    print(json.dumps(output), flush=True)
    os._exit(code)


def gloo_threads() -> int:
    """Threads of Gloo's groups, which `shutdown` ends.

    One that frees a tensor while the interpreter ends aborts the process.
    """
    end_s = time.monotonic() + 1
    while True:
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                names.append((task / "comm").read_text())
        left = sum(name.startswith("pt_gloo") for name in names)
        if not left or time.monotonic() > end_s:
            return left
        time.sleep(0.01)


def start() -> None:
    """Run the job of the command line."""
    ranks.main(rank)


if __name__ == "__main__":
    start()
