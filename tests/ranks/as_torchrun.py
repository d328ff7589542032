"""`as_torchrun.py FOLDER RANKS HOSTS MODULE PROGRAM...`, see jobs.py: each rank is a fork with
torchrun's variables.

It runs all programs and writes what each returned as the last line of FOLDER/<rank>.out.

A program is a function without arguments. It joins the other ranks by itself, as in a process that
torchrun started.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import ranks


def rank(
    folder: Path, number: int, size: int, _hosts: int, port: int, module: str, names: list[str]
) -> None:
    """Run and report; never returns."""
    ranks.redirect(folder, number)
    os.environ |= {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(number),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    try:
        output = {name: getattr(sys.modules[module], name)() for name in names}
        print(json.dumps(output), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def start() -> None:
    """Run the job of the command line."""
    ranks.main(rank)


if __name__ == "__main__":
    start()
