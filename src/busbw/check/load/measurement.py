"""A measurement in a process of its own, so that one that hangs or crashes can be given up."""

import os
import subprocess
from typing import TypeVar

import msgspec

from busbw.core import program
from busbw.host.process import die_with_parent, kill_with_children

Answer = TypeVar("Answer")


def run_measurement(
    module: str,
    seconds: float,
    limit_s: float,
    kind: type[Answer],
    *,
    what: str,
    environment: dict[str, str] | None = None,
) -> Answer | str:
    """The answer of `python -m module seconds`, which prints it as JSON.

    A text about `what` says why there is none. The process is killed after `limit_s` seconds with
    all that it started. They stay in the group of this process, which `host.limited` kills when it
    gives up.
    """
    process = subprocess.Popen(
        program.module_command(module, str(seconds)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | (environment or {}),
        preexec_fn=die_with_parent,
    )
    with process:
        try:
            out, error = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"{what} did not end within {limit_s:.0f} s"
        finally:
            if process.returncode is None:
                kill_with_children(process.pid)
    try:
        return msgspec.json.decode(out, type=kind)
    except msgspec.DecodeError:
        lines = error.decode(errors="replace").strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        return f"{what} ended with exit code {process.returncode}{reason}"
