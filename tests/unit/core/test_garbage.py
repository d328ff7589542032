"""What is left at exit: nothing looks for it, unless Triton's library would print it."""

import subprocess
import sys

import pytest

from busbw.core.garbage import TRITON


@pytest.mark.parametrize(("module", "frozen"), [("json", True), (TRITON, False)])
def test_objects_are_frozen_unless_triton_is_loaded(module: str, frozen: bool) -> None:
    lines = (
        "import gc, sys, types",
        f"sys.modules[{module!r}] = types.ModuleType('it')",
        "from busbw.core.garbage import leave_at_exit",
        "leave_at_exit()",
        "print(gc.get_freeze_count() > 0)",
    )
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{frozen}\n"
