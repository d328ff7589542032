"""`busbw moe --hosts` over two emulated hosts of a known rate: the bound is that of the bytes that
cross the network.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import netlab
import pytest

from busbw.moe.draws import draw
from busbw.moe.routing import UNIFORM, Routing
from busbw.moe.volumes import DISPATCH, volumes

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
RATE_MBIT = 400
HANG_S = 200  # where other processes use all cores


def test_bound_is_that_of_the_bytes_between_hosts(tmp_path: Path) -> None:
    file = tmp_path / "moe.json"
    words = "moe --tokens 256 --hidden 512 --experts 8 --top-k 2 --max-time 400ms --no-history"
    where = ("--hosts", "10.77.0.1:1,10.77.0.2:1", "--ifname", "10.77.0.0/24")
    try:
        with netlab.lab(hosts=2, rate_mbit=RATE_MBIT) as lab:
            command = (*words.split(), *where, "--json", str(file))
            done = netlab.busbw(lab, *command, limit_s=HANG_S, CUDA_VISIBLE_DEVICES="")
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated hosts: {error}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    ids = draw(Routing(UNIFORM), 1, 2, 256, 8, 2)
    moved = volumes(ids, 8, 1024).matrix(DISPATCH)
    between_bytes = max(moved[0][1], moved[1][0])
    assert [row["direction"] for row in rows] == ["dispatch", "combine"]
    for row in rows:
        assert row["wrong"] == 0
        assert row["bound_s"] == pytest.approx(between_bytes / (RATE_MBIT * 1e6 / 8))
        assert "Y/I" in row["bound"]
