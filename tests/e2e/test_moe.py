"""`busbw moe` on real ranks of PyTorch."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import busbw as api
from busbw.moe.draws import as_array
from busbw.moe.types import MoeResult
from busbw.moe.volumes import volumes

pytestmark = [
    pytest.mark.usefixtures("ranks_are_forks"),
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),
]
SMALL = ("moe", "--hidden", "64", "--experts", "8", "--top-k", "3", "--max-time", "40ms")


@pytest.fixture
def start(
    here: Callable[..., Any], warm_python: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """A run with PyTorch imported already."""
    monkeypatch.setattr(sys, "executable", warm_python)  # of the ranks
    return lambda *words: here("busbw", *SMALL, *words)


def test_two_ranks_verify_and_time_every_phase(start, here, tmp_path: Path) -> None:
    file = tmp_path / "moe.json"
    done = start("-np", "2", "--tokens", "16:32", "--json", str(file))
    assert done.code == 0, done.err
    result = api.load(file)
    assert isinstance(result, MoeResult)
    assert result.complete
    found = [(row.tokens, row.direction, list(row.phases), row.wrong) for row in result.rows]
    dispatch, combine = ["pack", "exchange", "unpack"], ["pack", "exchange", "reduce"]
    assert found == [
        (16, "dispatch", dispatch, 0),
        (16, "combine", combine, 0),
        (32, "dispatch", dispatch, 0),
        (32, "combine", combine, 0),
    ]
    for row in result.rows:
        assert all(time.n >= 8 for time in (row.whole, *row.phases.values()))
        assert row.selections_bytes == row.tokens * 3 * 64 * 2
    assert here("busbw", "show", str(file)).out == done.out
    assert "no bound: the ranks run on CPUs" in done.out
    assert "a mixture of 8 experts" in repr(result)


def test_four_ranks_take_the_experts_of_a_file(start, tmp_path: Path) -> None:
    ids = [[token % 8, (token + 3) % 8, (token * token + 1) % 8] for token in range(40)]
    ids = [token for token in ids if len(set(token)) == 3][:20]
    file = tmp_path / "ids.csv"
    file.write_text("".join(f"{a},{b},{c}\n" for a, b, c in ids))
    done = start("-np", "4", "--routing", f"file:{file}", "-d", "float", "--format", "json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    expected = volumes(as_array(ids, 4), 8, 64 * 4)
    assert [row["tokens"] for row in rows] == [5, 5]
    assert [row["wrong"] for row in rows] == [0, 0]
    for row in rows:
        assert row["received_bytes"] == expected.received_bytes
        assert row["wire_bytes"] == expected.wire_bytes(row["direction"])
        assert row["imbalance"] == pytest.approx(expected.imbalance)


def test_backend_that_cannot_run_is_named_and_left_out(start, tmp_path: Path) -> None:
    file = tmp_path / "moe.json"
    words = ("-np", "2", "--tokens", "8", "--json", str(file))
    done = start(*words, "--backends", "deepep,alltoallv")
    assert done.code == 0, done.err
    result = api.load(file)
    assert isinstance(result, MoeResult)
    assert result.left_out == {"deepep": "it needs GPUs"}
    assert [row.backend for row in result.rows] == ["alltoallv"] * 2
    assert "left out: deepep: it needs GPUs" in done.out
    done = start(*words, "--force", "--backends", "deepep")
    assert done.code == 3
    assert "no backend can run: deepep: it needs GPUs" in done.err
    assert "hint: name others with --backends" in done.err


@pytest.mark.parametrize("name", ["dispatch", "combine", "Dispatch"])
def test_run_of_dispatch_names_the_command(here, name: str) -> None:
    done = here("busbw", "run", name)
    assert done.code == 2
    assert "hint: busbw moe" in done.err
