"""`busbw moe` on real GPUs: operations wait in held queues, every element is right, and no exchange
is faster than its bound.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


@pytest.mark.parametrize("routing", ["uniform", "hot:0.9"])
def test_dispatch_and_combine_are_right_and_within_the_bound(
    gpus: int, routing: str, tmp_path: Path, record_property
) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    file = tmp_path / "moe.json"
    options = f"--tokens 128:2048 --hidden 7168 --experts {8 * gpus} --routing {routing}"
    argv = [sys.executable, "-m", "busbw", "moe", "-np", str(gpus), *options.split()]
    done = subprocess.run(
        [*argv, "--max-time", "1", "--no-history", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    result = json.loads(file.read_text())
    assert result["library"]["versions"]["backend"] == "nccl"
    assert len(result["rows"]) == 10
    for row in result["rows"]:
        assert row["wrong"] == 0
        exchange_s = row["phases"]["exchange"]["time_s"]
        record_property(f"{row['direction']} of {row['tokens']}", exchange_s)
        if row["bound_s"] is not None:
            assert exchange_s > 0.98 * row["bound_s"], "faster than the links"
