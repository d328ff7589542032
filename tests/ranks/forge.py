"""Starts jobs of ranks for the tests of one process: PyTorch is imported here once, and each job is
a fork.

Reads one JSON line a job (`program`, `argv`, `environment`, and the `path` of modules); answers
each with a line, its exit status, when all its ranks have ended.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # what an optimizer's first step imports
import torch.distributed


def job(program: str, argv: list[str], environment: dict[str, str], path: list[str]) -> None:
    """Run a job in a separate process; never returns."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [program, *argv]
        sys.path[:] = [str(Path(program).parent), *path]
        importlib.import_module(Path(program).stem).start()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Run jobs until the input ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            job(**request)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
