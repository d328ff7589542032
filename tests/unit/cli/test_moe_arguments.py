"""What `busbw moe` refuses before ranks start."""

import json
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--backends", "deep"), "--backends: unknown backend 'deep'"),
        (("--routing", "even"), "--routing even: no such routing"),
        (("--experts", "8", "--top-k", "9"), "--top-k 9: there are only 8 experts"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(words, message: str, capsys: Captured) -> None:
    error = refused(capsys, *words)
    assert message in error and "hint: " in error


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


def test_a_system_has_the_time_that_predict_has(capsys: Captured) -> None:
    words = ["moe", "--system", "h200x8", "--experts", "8", "--top-k", "8", "--tokens", "4096"]
    assert guarded([*words, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    size = str(row["wire_bytes"] * 8 // 7)  # each token goes to each rank: an alltoall
    predict = ["predict", "alltoall", "--system", "h200x8", "-b", size, "-e", size]
    assert guarded([*predict, "--format", "json"]) == 0
    (expected,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["nccl_s"] == pytest.approx(expected["time_s"])
    assert guarded(words) == 0
    assert f" {1e6 * row['nccl_s']:.0f} " in capsys.readouterr().out


def test_nics_that_are_assumed_are_named(capsys: Captured) -> None:
    words = ["moe", "-np", "16", "--tokens", "1"]
    assumed = "# NICs of each host, 8 x 50 GB/s, assumed: name yours with --nics\n"
    assert guarded([*words, "--system", "h200x8"]) == 0
    assert assumed in capsys.readouterr().out
    assert guarded([*words, "--system", "h200x8", "--nics", "8x400G"]) == 0
    assert "# NICs of each host, 8 x 50 GB/s\n" in capsys.readouterr().out
    assert guarded([*words, "--system", "p5.48xlarge"]) == 0
    assert "assumed" not in capsys.readouterr().out
    assert guarded(["moe", "--tokens", "1", "--system", "h200x8"]) == 0
    assert "# NICs" not in capsys.readouterr().out


def test_an_estimate_is_kept_by_its_format(capsys: Captured) -> None:
    assert guarded(["moe", "--system", "h200x8", "--json", "e.json"]) == int(Exit.USAGE)
    error = capsys.readouterr().err
    assert "error: --json: nothing is measured with --system" in error
    assert "hint: keep the estimate with --format json > FILE" in error
    assert guarded(["moe", "--system", "h200x8", "--hosts", "a", "--json", "e.json"]) == 2
    assert "hint: leave them out" in capsys.readouterr().err


def test_a_system_without_numpy_names_what_installs_it() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None; from busbw.cli.main import guarded;"
        " sys.exit(guarded(['moe', '--system', 'h200x8']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (int(Exit.UNKNOWN), "")
    assert "error: the experts of tokens are drawn with numpy: " in done.stderr
    assert done.stderr.endswith("hint: pip install 'busbw[mpi]'\n")


def test_one_rank_has_no_time_of_nccl(capsys: Captured) -> None:
    assert guarded(["moe", "--system", "h200x8", "-np", "1", "--tokens", "1"]) == 0
    assert "nccl" not in capsys.readouterr().out
