"""What `busbw moe` refuses before ranks start."""

import json
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core.errors import Exit

Captured = pytest.CaptureFixture[str]


def refused(capsys: Captured, *words: str) -> str:
    """The error of a run that would print the command of its ranks."""
    code = guarded(["moe", "-np", "2", "--dry-run", *words])
    captured = capsys.readouterr()
    assert (code, captured.out) == (int(Exit.USAGE), "")
    return captured.err


@pytest.mark.parametrize("text", ["0", "", "abc", "1.5", "-5", "4K:", ":4", "8:4", "1:2:3", "2M"])
def test_other_text_than_numbers_of_tokens_is_refused(text: str, capsys: Captured) -> None:
    error = refused(capsys, "--tokens", text)
    assert f"error: --tokens {text}: not 1 to 1048576 tokens, the smaller number first" in error
    assert "hint: write it like --tokens 512 or --tokens 128:4K" in error


def test_experts_must_fit_the_ranks(capsys: Captured) -> None:
    error = refused(capsys, "--experts", "63")
    assert "error: --experts 63: they cannot be divided between 2 ranks" in error


def test_a_file_of_ids_is_read_before_ranks_start(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "ids.csv"
    option = f"--routing file:{file}"
    words = ("--top-k", "2", *option.split())
    assert f"error: {option}: No such file or directory\n\nhint: name a file of" in refused(
        capsys, *words
    )
    file.write_text("1,2\n1,2,3\n")
    error = refused(capsys, *words)
    assert f"error: {option}: line 2 has 3 ids, and --top-k is 2\n\nhint: give --top-k 3" in error
    file.write_text("1,2\n3,4\n")
    assert f"error: {option} has 2 tokens, but 2 ranks with 4 tokens each have 8" in refused(
        capsys, *words, "--tokens", "4"
    )
    assert guarded(["moe", "-np", "2", "--dry-run", *words, "--tokens", "1"]) == 0
    file.unlink()
    guarded(["moe", "-np", "2", "--dry-run", *words, "--hosts", "a,b"])
    assert "No such file" not in capsys.readouterr().err, "it is on the host of rank 0"


def test_a_system_has_the_latency_that_predict_has(capsys: Captured) -> None:
    words = ["moe", "--system", "h200x8", "--tokens", "1:2"]
    assert guarded([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert guarded(["predict", "alltoall", "--system", "h200x8", "-b", "1K", "-e", "1K"]) == 0
    latency_us = 1e6 * found["latency_s"]
    assert f" {latency_us:.2f} us " in capsys.readouterr().out
    assert guarded(words) == 0
    out = capsys.readouterr().out
    assert f"nccl: us, least and the {latency_us:.2f} us that busbw predict expects" in out
    cells = next(line.split() for line in out.splitlines() if line.strip().startswith("1 "))
    assert float(cells[3]) == pytest.approx(float(cells[2]) + latency_us, abs=0.02)


def test_one_rank_has_no_latency(capsys: Captured) -> None:
    assert guarded(["moe", "--system", "h200x8", "-np", "1", "--tokens", "1"]) == 0
    assert "nccl" not in capsys.readouterr().out
