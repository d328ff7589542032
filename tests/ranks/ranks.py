"""`ranks.py FOLDER RANKS HOSTS MODULE SCENARIO...`, see jobs.py: each rank is a fork that runs
all and writes FOLDER/<rank>.out.
"""

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

PR_SET_PDEATHSIG = 1
LIMIT = timedelta(seconds=120)
STACKS_S = 90  # before the test stops waiting for the job


def start_store() -> int:
    """Start a process that keeps a store until this one ends; return its port."""
    (port_reader, port_writer), (end_reader, end_writer) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(end_writer)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(port_writer, str(store.port).encode())
        os.read(end_reader, 1)  # ends with whoever holds the other end
        os._exit(0)
    os.close(end_reader)
    return int(os.read(port_reader, 16))


def redirect(folder: Path, number: int) -> None:
    """Send a rank's output to its files, and its threads' stacks if it does not end."""
    for descriptor, kind in ((1, "out"), (2, "err")):
        os.dup2(
            os.open(folder / f"{number}.{kind}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor
        )
    faulthandler.dump_traceback_later(STACKS_S, file=2)


def loaded(module: str) -> str:
    """Import a module, given by name or by its file, and return its name."""
    file = Path(module)
    if file.is_absolute():
        sys.path.append(str(file.parent))
    importlib.import_module(file.stem)
    return file.stem


def rank(
    folder: Path, number: int, ranks: int, hosts: int, port: int, module: str, names: list[str]
) -> None:
    """Join the job, run, leave; never returns."""
    redirect(folder, number)
    os.environ["NCCL_HOSTID"] = f"host{number * hosts // ranks}"
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=LIMIT)
        gpu = os.environ.get("ACCEL_DEVICE") == "cuda"
        if gpu:
            torch.cuda.set_device(number % torch.cuda.device_count())
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            store=store,
            rank=number,
            world_size=ranks,
            timeout=LIMIT,
        )
        output = {}
        for name in names:
            torch.manual_seed(number)
            output[name] = getattr(sys.modules[module], name)()
            dist.barrier()
        print(json.dumps(output), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # without waiting for the workers' threads


def main(rank: Callable[[Path, int, int, int, int, str, list[str]], None]) -> None:
    """Import, fork, wait, write each rank's exit code; never returns."""
    folder, ranks, hosts, module = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        loaded(sys.argv[4]),
    )
    torch.set_num_threads(1)
    # Lanes that scenarios leave open would be collected at times of each rank's own, and gloo waits
    # seconds for the other ends.
    gc.disable()
    children, port = {}, start_store()
    for number in range(ranks):
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a job is killed whole
            # A fork gets a new pool of threads when it first asks for one. PyTorch's autograd
            # threads would all ask at once, which ends some processes with "Invalid thread pool!".
            torch.set_num_threads(1)
            rank(folder, number, ranks, hosts, port, module, sys.argv[5:])
        children[child] = number
    for _ in children:
        child, status = os.wait()
        (folder / f"{children[child]}.code").write_text(str(os.waitstatus_to_exitcode(status)))
    os._exit(0)  # libraries would report at exit what was not collected


def start() -> None:
    """Run the job of the command line."""
    main(rank)


if __name__ == "__main__":
    start()
