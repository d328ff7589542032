"""`busbw tune` on simulated ranks: what NCCL's model does not know is found, checked with new
ranks, and written for the plugin.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busbw.core.tuner_table import parse
from busbw.launch import mpirun

Busbw = Callable[..., Any]
SIM = ("--engine", "sim", "-np", "4")
SLOW_LL = ("--sim", "ll=2,channel_us=0.3")
SIZES = ("-b", "4K", "-e", "16K", "--max-time", "0.3")
QUICK = (*SIM, *SIZES, "--no-settings")


def test_faster_settings_are_written_checked_and_printed(here: Busbw, tmp_path: Path) -> None:
    done = here("busbw", "tune", "all_reduce", *QUICK, *SLOW_LL)
    assert done.code == 0, done.err
    assert (
        "2 sizes, up to 20 candidates each" in done.err
        and "checking 2 sizes with new ranks: 8 runs" in done.err
    )
    table = parse((tmp_path / "busbw-tuner.table").read_text(), "table")
    assert table.texts_of("state") == ["all_reduce checked with new ranks"]
    assert table.choice(4, 1, "all_reduce", 4096) is not None
    assert f"export BUSBW_TUNER_TABLE={tmp_path / 'busbw-tuner.table'}" in done.out
    assert "the table has rules for 2 of 2 sizes; no measured size is slower" in done.out

    with_table = here("busbw", "tune", "all_gather", *QUICK, *SLOW_LL, "--format", "json")
    tables = parse((tmp_path / "busbw-tuner.table").read_text(), "table")
    assert {rule.collective for rule in tables.rules} == {"all_reduce", "all_gather"}, (
        "rules of another collective stay"
    )
    sizes = json.loads(with_table.out)["sizes"]
    assert all(
        size["gain"]["high"] < 1 and size["check"]["ratio"] < 1 for size in sizes if size["kept"]
    )

    checked = here("busbw", "tune", "--recheck", "busbw-tuner.table", *SIM, *SLOW_LL)
    assert checked.code == 0, checked.err
    assert checked.out.count("AllReduce") == checked.out.count("AllGather") == 1
    assert "4 faster" in checked.out
    slower = here("busbw", "tune", "--recheck", "busbw-tuner.table", *SIM, "--format", "json")
    assert slower.code == 1, "where LL costs nothing extra, other protocols are slower"
    assert slower.out.count('"schema": "busbw.comparison/1"') == 2, (
        "one document for each collective"
    )
    other = here("busbw", "tune", "--recheck", "busbw-tuner.table", "--engine", "sim", "-np", "8")
    assert (other.code, "for another system: ranks 4, here 8" in other.err) == (2, True)


def test_without_a_gain_nccls_choice_is_reported_as_best(here: Busbw, tmp_path: Path) -> None:
    done = here("busbw", "tune", "all_reduce", *QUICK)
    assert done.code == 0, done.err
    assert "NCCL's choice is best for all of 2 sizes" in done.out and "export" not in done.out
    assert parse((tmp_path / "busbw-tuner.table").read_text(), "table").rules == []


def test_a_candidate_of_which_a_rank_dies_is_named_and_dropped(here: Busbw) -> None:
    done = here("busbw", "tune", "all_reduce", *QUICK, "--sim", "ll=2,channel_us=0.3,dies_algo=0")
    assert done.code == 0, done.err
    assert "note: Tree LL at 4K failed and is dropped: rank 1 ended" in done.err
    assert "dropped: Tree Simple: at 4K: rank 1 ended" in done.out
    assert "the table has rules for 2 of 2 sizes" in done.out
    own = here("busbw", "tune", "all_reduce", *QUICK, "--sim", "dies_algo=1")
    assert (own.code, "rank 1 ended in all_reduce with Ring LL" in own.err) == (3, True), (
        "NCCL's own choice cannot be dropped"
    )


def test_settings_that_help_all_sizes_belong_to_the_table(here: Busbw, tmp_path: Path) -> None:
    sweep_options = (*SIM, "-b", "64K", "-e", "256K", "--sim", "channels=4")
    done = here("busbw", "tune", "all_reduce", *sweep_options, "--max-time", "0.3")
    assert done.code == 0, done.err
    assert "export NCCL_MIN_NCHANNELS=16" in done.out
    assert parse((tmp_path / "busbw-tuner.table").read_text(), "table").texts_of("variable") == [
        "NCCL_MIN_NCHANNELS=16"
    ]
    done = here("busbw", "tune", "all_reduce", *sweep_options, "--variables")
    assert (
        "for all sizes alike" in done.out
        and "export NCCL_MIN_NCHANNELS=16" in done.out
        and "BUSBW" not in done.out
    )


def test_an_interrupt_keeps_what_was_found(run: Busbw, tmp_path: Path) -> None:
    file = tmp_path / "busbw-tuner.table"
    source = str(Path(__file__).parents[2] / "src")
    words = [
        sys.executable,
        "-m",
        "busbw",
        "tune",
        "all_reduce",
        *SIM,
        *SLOW_LL,
        "-e",
        "1G",
        "--no-settings",
        "--max-time",
        "600",
    ]
    started = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={"PYTHONPATH": source, "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 120  # on a busy machine
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=30)
    assert started.returncode == 130
    assert (
        "busbw-tuner.table has what was found so far; it was not checked with new ranks" in errors
    )
    assert parse(file.read_text(), "table").texts_of("state") == [
        "all_reduce found, not yet checked with new ranks"
    ]


def test_an_error_keeps_what_was_found(run: Busbw, tmp_path: Path) -> None:
    room = 600  # bytes of the largest file that may be written: enough for two rules
    source = str(Path(__file__).parents[2] / "src")
    words = [
        sys.executable,
        "-m",
        "busbw",
        "tune",
        "all_reduce",
        *SIM,
        *SLOW_LL,
        "-b",
        "4K",
        "-e",
        "1M",
        "--no-settings",
        "--max-time",
        "0.3",
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={"PYTHONPATH": source, "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    assert done.returncode == 3
    assert (
        "busbw-tuner.table has what was found so far; it was not checked with new ranks"
        in done.stderr
    )
    assert "busbw-tuner.table: File too large" in done.stderr
    assert parse((tmp_path / "busbw-tuner.table").read_text(), "table").rules


def test_ranks_without_algorithms_are_refused(here: Busbw) -> None:
    done = here("busbw", "tune", "all_reduce", "-np", "2", "-e", "4K")
    assert (done.code, "the mpi engine has no algorithms to choose from" in done.err) == (
        3,
        True,
    ), done.err


def test_ranks_in_separate_processes_decide_alike() -> None:
    program = [sys.executable, str(Path(__file__).with_name("tune_rank.py"))]
    line = mpirun.command(mpirun.find(), program, 3)
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        line,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    small, large = done.stdout.splitlines()
    assert small.startswith("1024 Ring LL, ") and small.endswith(" True"), (
        "channels cost time, and no size is too small for LL"
    )
    assert large.startswith(("1048576 Ring LL128", "1048576 Ring Simple")) and large.endswith(
        " True"
    ), "LL takes twice its time"
