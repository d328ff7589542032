"""The exit code of what Ctrl-C ends."""

import subprocess
import sys
from pathlib import Path

from busbw.core.errors import Exit

PROGRAM = """
from busbw.cli import main

def interrupted():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return main.Exit.INTERRUPTED

main.main = interrupted
main.entry()
"""


def test_an_interrupt_in_generated_code_is_an_exit_code_like_any_other(tmp_path: Path) -> None:
    """Python remembers it, and ends by the signal what `python -m` runs."""
    Path(tmp_path, "program.py").write_text(PROGRAM)
    result = subprocess.run([sys.executable, "-m", "program"], cwd=tmp_path, check=False)
    assert result.returncode == Exit.INTERRUPTED
