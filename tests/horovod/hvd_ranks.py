"""`hvd_ranks.py FOLDER RANKS HOSTS MODULE CONTRACT...`, see forge.py: each rank is a fork that runs all and writes FOLDER/<rank>.out.

A process of its own keeps the store, as torchrun's agent does.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "accel"))
import ranks

import busbw.horovod.torch as hvd


def rank(folder: Path, number: int, size: int, hosts: int, port: int, module: str, names: list[str]) -> None:
    """Join the job, run, leave; never returns."""
    for descriptor, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{number}.{kind}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
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
    said, code = {}, 0
    try:
        for name in names:
            hvd.init()
            torch.manual_seed(0)
            try:
                said[name] = getattr(sys.modules[module], name)()
            except Exception:
                said[name], code = {"failed": traceback.format_exc()}, 1
            if hvd.is_initialized():
                hvd.barrier()
                hvd.shutdown()
    except BaseException:
        traceback.print_exc()
        code = 1
    print(json.dumps(said), flush=True)
    os._exit(code)


def start() -> None:
    """The job of the command line."""
    ranks.main(rank)
