"""`busbw backends --rail` over two emulated hosts that two cables of different rates join: each
alone, and both.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(
        find_spec("nixl_cu13") is None, reason="NIXL is not installed: pip install nixl-cu13"
    ),
]
SOURCE = str(Path(__file__).parents[2] / "src")
FAST, SLOW = "10.77.0.0/24", "10.78.0.0/24"
FAST_MBIT, SLOW_MBIT = 800, 50
BLOCKS, BLOCK = 16, 1 << 20  # much more than the rate limits let through at once
HANG_S = 250  # where other processes use all cores
BACKENDS = ["gloo-packed", "nixl", "nixl-write"]


def test_the_slow_cable_shows_alone_and_both_have_their_line_rates(tmp_path: Path) -> None:
    file = tmp_path / "rails.json"
    words = f"backends sendrecv --blocks {BLOCKS} -b {BLOCK} -e {BLOCK} --max-time 400ms"
    rails = ("--rail", f"{FAST}={FAST_MBIT}Mbit/s", "--rail", f"{SLOW}={SLOW_MBIT}Mbit/s")
    where = ("--hosts", "10.77.0.1:1,10.77.0.2:1", "--ifname", FAST)
    what = ("--backends", ",".join(BACKENDS), "--no-history", "--json", str(file))
    try:
        with netlab.lab(hosts=2, rate_mbit=FAST_MBIT) as lab:
            netlab.second_cable(lab, SLOW_MBIT)
            environment = {**os.environ, **lab.environment(), "PYTHONPATH": SOURCE}
            # Both hosts are one machine, whose memory UCX would use.
            environment |= {"CUDA_VISIBLE_DEVICES": "", "UCX_TLS": "tcp,self"}
            command = (sys.executable, "-m", "busbw", *words.split(), *where, *rails, *what)
            done = subprocess.run(
                lab.hosts[0].enter(*command),
                env=environment,
                capture_output=True,
                text=True,
                timeout=HANG_S,
                check=False,
            )
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    names = ["all", FAST, SLOW]
    assert [rail["name"] for rail in result["rails"]] == names
    rates = [rail["rate"] * 8 / 1e6 for rail in result["rails"]]
    assert rates == pytest.approx([FAST_MBIT + SLOW_MBIT, FAST_MBIT, SLOW_MBIT])
    assert result["complete"]
    assert result["left_out"] == {"gloo-packed@all": "Gloo sends over one interface"}
    cells = {time["backend"]: time["cell"] for time in result["rows"][0]["times"]}
    measured = [f"{backend}@{name}" for name in names for backend in BACKENDS]
    assert list(cells) == measured[1:]
    for backend in BACKENDS:
        _check_rates(cells[f"{backend}@{FAST}"], cells[f"{backend}@{SLOW}"])
    assert f"{BACKENDS[-1]}, GB/s of a transfer of 16 blocks of the size:" in done.stdout
    assert any(line.startswith(SLOW) and line.endswith("0.00625") for line in _lines(done.stdout))


def _check_rates(fast: dict[str, Any], slow: dict[str, Any]) -> None:
    """Both moved the data through their own cable: none is faster than it, but for what its queue
    lets through at once.
    """
    assert fast["wrong"] == slow["wrong"] == 0
    assert slow["algbw"] * 8 / 1e6 < 1.1 * SLOW_MBIT
    assert 1.5 * SLOW_MBIT < fast["algbw"] * 8 / 1e6 < 1.1 * FAST_MBIT


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]
