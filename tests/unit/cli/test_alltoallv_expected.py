"""What predict and explain expect of an alltoallv: by the bytes that its ranks really move."""

import json
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.model.nccl.p2p import ALL_PAIRS

RECORDED = (
    Path(__file__).parents[3] / "benchmarks/node_2xh200_202611/collectives/alltoallv.json"
)  # with nccl-tests' matrix, in which each of two ranks sends all to the other
Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *words: str) -> str:
    assert guarded(words) == 0
    return capsys.readouterr().out


def bound(capsys: Captured, collective: str, system: str, *options: str) -> float:
    """Bytes per second of busbw at the rates of the links."""
    words = ("predict", collective, "--system", system, "-b", "4G", "-e", "4G", *options)
    prediction = json.loads(printed(capsys, *words, "--format", "json"))
    return float(prediction["bounds"]["levels"][0]["wire"])


def row(capsys: Captured, collective: str, size: str) -> dict[str, float]:
    words = ("predict", collective, "--system", "h200x2", "-b", size, "-e", size)
    (found,) = json.loads(printed(capsys, *words, "--format", "json"))["rows"]
    return dict(found)


def test_two_ranks_that_send_all_to_the_other_have_half_the_busbw(capsys: Captured) -> None:
    assert bound(capsys, "alltoallv", "h200x2") == bound(capsys, "alltoall", "h200x2") / 2


@pytest.mark.parametrize("size", ["1K", "16M", "4G"])
def test_two_ranks_that_send_all_to_the_other_take_as_long_as_an_alltoall_of_twice_the_bytes(
    capsys: Captured, size: str
) -> None:
    doubled = {"1K": "2K", "16M": "32M", "4G": "8G"}[size]
    even = row(capsys, "alltoall", doubled)
    uneven = row(capsys, "alltoallv", size)
    assert uneven["time_s"] == pytest.approx(even["time_s"])
    for figure in ("busbw", "low"):
        assert uneven[figure] == pytest.approx(even[figure] / 2)
    assert uneven["high"] <= bound(capsys, "alltoallv", "h200x2")


def test_an_even_matrix_is_expected_as_alltoall(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "even").write_text("1 1\n1 1\n")
    even = bound(capsys, "alltoallv", "h200x2", "--counts", f"file:{tmp_path / 'even'}")
    assert even == bound(capsys, "alltoall", "h200x2")


def test_many_ranks_are_expected_as_with_an_even_matrix(capsys: Captured) -> None:
    many = ("h100x8", "--nics", "8x400G", "--nodes", "64")
    assert bound(capsys, "alltoallv", *many) == bound(capsys, "alltoall", *many)


def test_nccl_tests_matrix_crosses_a_spine_as_alltoall(capsys: Captured) -> None:
    words = ("--system", "h100x8", "--nics", "8x400G", "--nodes", "64", "-b", "1G", "-e", "1G")
    leaf = ("--oversubscription", "2", "--hosts-per-leaf", "8")
    even, by_nccl_tests = (
        printed(capsys, "predict", collective, *words, *leaf) for collective in ALL_PAIRS
    )
    assert by_nccl_tests.lower().replace("alltoallv", "alltoall") == even.lower()


@pytest.mark.parametrize("form", ["result", "log of nccl-tests"])
def test_a_measured_alltoallv_is_judged_by_its_own_bytes(
    capsys: Captured, tmp_path: Path, form: str
) -> None:
    file = RECORDED
    if form != "result":
        file = tmp_path / "log"
        file.write_text(printed(capsys, "show", str(RECORDED), "--format", "nccl-tests"))
    words = ("explain", str(file), "--system", "h200x2", "--format", "json")
    explanation = json.loads(printed(capsys, *words))
    assert explanation["verdict"] == "expected"
    (load,) = explanation["loads"]
    assert load["used"] == pytest.approx(2 * explanation["busbw"])
    assumed = [note for note in explanation["notes"] if "own matrix are assumed" in note]
    assert len(assumed) == (form != "result")
