"""`busbw backends --rail` over two emulated hosts that two cables of different rates join: each
alone, and both.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
needs_nixl = pytest.mark.skipif(
    find_spec("nixl_cu13") is None, reason="NIXL is not installed: pip install nixl-cu13"
)
FAST, SLOW = "10.77.0.0/24", "10.78.0.0/24"
FAST_MBIT, SLOW_MBIT = 800, 200
BLOCKS, BLOCK = 16, 1 << 19  # much more than the rate limits let through at once
HANG_S = 250  # where other processes use all cores
BACKENDS = ["gloo-packed", "nixl", "nixl-write"]


@needs_nixl
def test_the_slow_cable_shows_alone_and_both_have_their_line_rates(tmp_path: Path) -> None:
    rates_mbit = (f"{FAST}={FAST_MBIT}Mbit/s", f"{SLOW}={SLOW_MBIT}Mbit/s")
    result, out, _ = _measured(BACKENDS, rates_mbit, tmp_path / "rails.json")
    names = ["all", FAST, SLOW]
    assert [rail["name"] for rail in result["rails"]] == names
    rates = [rail["rate"] * 8 / 1e6 for rail in result["rails"]]
    assert rates == pytest.approx([FAST_MBIT + SLOW_MBIT, FAST_MBIT, SLOW_MBIT])
    assert result["left_out"] == {"gloo-packed@all": "Gloo sends over one interface"}
    cells = {time["backend"]: time["cell"] for time in result["rows"][0]["times"]}
    measured = [f"{backend}@{name}" for name in names for backend in BACKENDS]
    assert list(cells) == measured[1:]
    for backend in BACKENDS:
        _check_rates(cells[f"{backend}@{FAST}"], cells[f"{backend}@{SLOW}"])
    assert f"{BACKENDS[-1]}, GB/s of a transfer of 16 blocks of the size:" in out
    assert any(line.startswith(SLOW) and line.endswith("0.0250") for line in _lines(out))


def test_gloo_alone_is_measured_over_each_cable_though_it_cannot_use_both(tmp_path: Path) -> None:
    backends = ["gloo-grouped", "gloo-packed"]
    result, _, err = _measured(backends, (FAST, SLOW), tmp_path / "gloo.json")
    reason = result["left_out"]["all"]
    assert "no backend can run: gloo-grouped@all: Gloo sends over one interface; " in reason
    assert f"note: all is left out: {reason}" in err
    assert [rail["name"] for rail in result["rails"]] == [FAST, SLOW]
    cells = {time["backend"]: time["cell"] for time in result["rows"][0]["times"]}
    assert list(cells) == [f"{backend}@{name}" for name in (FAST, SLOW) for backend in backends]
    for backend in backends:
        _check_rates(cells[f"{backend}@{FAST}"], cells[f"{backend}@{SLOW}"])
    variables = [rail["variables"] for rail in result["rails"]]
    names = [each["GLOO_SOCKET_IFNAME"] for each in variables]
    assert len(set(names)) == 2
    assert [each["UCX_NET_DEVICES"] for each in variables] == names
    assert not variables[0].keys() & result["environment"].keys()


def _measured(
    backends: Sequence[str], rails: Sequence[str], file: Path
) -> tuple[dict[str, Any], str, str]:
    """The complete result over these NICs, the table, and the messages."""
    words = f"backends sendrecv --blocks {BLOCKS} -b {BLOCK} -e {BLOCK} --max-time 400ms"
    named = [word for rail in rails for word in ("--rail", rail)]
    where = ("--hosts", "10.77.0.1:1,10.77.0.2:1", "--ifname", FAST)
    what = ("--backends", ",".join(backends), "--no-history", "--json", str(file))
    try:
        with netlab.lab(hosts=2, rate_mbit=FAST_MBIT) as lab:
            netlab.second_cable(lab, SLOW_MBIT)
            # Both hosts are one machine, whose memory UCX would use.
            variables = {"CUDA_VISIBLE_DEVICES": "", "UCX_TLS": "tcp,self"}
            command = (*words.split(), *where, *named, *what)
            done = netlab.busbw(lab, *command, limit_s=HANG_S, **variables)
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(file.read_text())
    assert result["complete"]
    return result, done.stdout, done.stderr


def _check_rates(fast: dict[str, Any], slow: dict[str, Any]) -> None:
    """Both moved the data through their own cable: none is faster than it, but for what its queue
    lets through at once. On a busy machine the fast one may be much slower than its cable.
    """
    assert fast["wrong"] == slow["wrong"] == 0
    assert slow["algbw"] * 8 / 1e6 < 1.1 * SLOW_MBIT
    assert 1.1 * SLOW_MBIT < fast["algbw"] * 8 / 1e6 < 1.1 * FAST_MBIT


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]
