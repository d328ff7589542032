"""`python -m busbw_accel.horovod SCRIPT ...` runs a script with this module as `horovod`."""

import os
import runpy
import sys
from pathlib import Path

from busbw.core.errors import Exit
from busbw_accel.horovod import shim


def main() -> int:
    """Run the script as `python SCRIPT` would."""
    script = sys.argv[1] if len(sys.argv) > 1 else ""
    if not Path(script).is_file():
        problem = f"{script}: no such file" if script else "no script to run"
        sys.stderr.write(
            f"error: {problem}\n\nhint: mpirun -n 2 python -m busbw_accel.horovod train.py ...\n"
        )
        return int(Exit.USAGE)
    shim.install()
    os.environ |= shim.environ()  # for processes that the script starts
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    return int(Exit.OK)


if __name__ == "__main__":
    sys.exit(main())
