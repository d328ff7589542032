"""The nccl-tests frontend: called by a name of nccl-tests, busbw behaves like it, down to its
exit codes.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from busbw.engines.sim_parameters import PARAMETERS
from busbw.launch import mpirun

PYTHON = sys.executable  # one that starts anew
pytestmark = pytest.mark.usefixtures("ranks_are_forks")

ONE = ("-b", "1K", "-e", "1K", "-g", "2")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if re.match(r"\s+\d", line)]


def test_text_is_what_wrappers_parse(run):
    done = run("all_reduce_perf", "-b", "8", "-e", "128", "-f", "2", "-g", "2", BUSBW_ENGINE="mpi")
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:3] == [
        "# Collective test starting: all_reduce_perf",
        (
            "# nThread 1 nGpus 2 minBytes 8 maxBytes 128 step: 2(factor) warmup iters: 1 iters: 20"
            " agg iters: 1 validation: 1 graph: 0 unalign: 0"
        ),
    ]
    assert [len(fields) for fields in rows(done.out)] == [13] * 5
    assert "# Out of bounds values : 0 OK" in done.out
    float(next(line for line in done.out.splitlines() if "Avg bus bandwidth" in line).split()[5])


@pytest.mark.parametrize(
    "words",
    [
        ("-b8", "-e", "8"),
        ("--minb", "8", "--maxbytes=8"),
        ("junk", "-b", "4", "-e", "8", "-b", "8"),
    ],
)
def test_arguments_are_parsed_as_getopt_long_does(here, words):
    done = here("all_reduce_perf", *words, "-g", "2")
    assert [fields[0] for fields in rows(done.out)] == ["8"], done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-b", "2T"), "invalid size specified for 'minbytes'"),
        (("-e", "x"), "invalid size specified for 'maxbytes'"),
        (("-i", "-5"), "invalid size specified for 'stepBytes'"),
        (("-b", "64M"), "invalid sizes for 'minbytes' and 'maxbytes': 67108864 > 33554432"),
        (
            ("-D", "1"),
            "device implementation (-D > 0) requires enabling symmetric memory registration (-R 2)",
        ),
        (("-b", "0", "-e", "8"), "would never grow"),
    ],
)
def test_bad_arguments_end_with_255_on_stderr(here, words, message):
    done = here("all_reduce_perf", *words)
    assert (done.code, done.out) == (255, "")
    assert message in done.err


def test_unknown_options_and_help_print_usage_and_end_with_0(here):
    done = here("all_reduce_perf", "--nope")
    assert done.code == 0
    assert done.out.startswith("invalid option '?'\nUSAGE:")
    assert here("all_reduce_perf", "-h").out.startswith("USAGE:")


def test_unknown_types_and_operations_fall_back_to_defaults(here):
    done = here("all_reduce_perf", "-d", "nope", "-o", "nope", *ONE)
    assert done.code == 0, done.err
    assert done.out.startswith(
        "invalid type nope, defaulting to float .. \ninvalid op nope, defaulting to sum .. \n"
    )


@pytest.mark.parametrize(
    ("least", "code", "word"),
    [("0.0000001", 0, "OK"), ("100000", 7, "FAILED"), ("garbage", 0, "OK")],
)
def test_minimum_bandwidth(here, least, code, word):
    done = here("all_reduce_perf", *ONE, NCCL_TESTS_MIN_BW=least)
    assert done.code == code, done.err
    assert re.search(rf"# Avg bus bandwidth    : \S+ {word}$", done.out, re.MULTILINE)


def test_wrong_data_ends_with_7(here, monkeypatch):
    corrupt = PARAMETERS["corrupt_rank"]._replace(default=1.0)
    monkeypatch.setitem(PARAMETERS, "corrupt_rank", corrupt)
    done = here("all_reduce_perf", *ONE)
    assert done.code == 7, done.err
    assert re.search(r"# Out of bounds values : [1-9]\d* FAILED$", done.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-D", "1", "-R", "2"), "device API"),
        (("--tuning=1",), "-U 1: busbw does not report which algorithm and protocol NCCL chose"),
    ],
)
def test_what_busbw_lacks_is_refused_with_the_reason(here, words, reason):
    done = here("all_reduce_perf", *words, *ONE)
    assert done.code == 5
    assert reason in done.err


@pytest.mark.parametrize(
    ("words", "engine", "code", "message", "hint"),
    [
        (
            ("-g", "999"),
            "mpi",
            3,
            "-t times -g is 999: more than 16 ranks per core of this machine",
            "give fewer with -g and -t",
        ),
        (
            ONE,
            "nope",
            3,
            "BUSBW_ENGINE: unknown engine 'nope'",
            "the engines are nccl, torch, mpi, sim",
        ),
        (
            (*ONE, "-G", "1"),
            "mpi",
            3,
            "-G: the mpi engine has no CUDA graphs",
            "leave out -G, or use BUSBW_ENGINE=nccl",
        ),
    ],
    ids=["ranks", "engine", "graph"],
)
def test_errors_name_the_options_that_are_there(here, words, engine, code, message, hint):
    done = here("all_reduce_perf", *words, BUSBW_ENGINE=engine)
    assert done.code == code
    assert re.search(
        rf": Test NCCL failure '(rank [01] on \S+: )?{re.escape(message)}'$",
        done.out.splitlines()[-1],
    )
    *_, error, empty, hint_line = done.err.splitlines()
    assert re.fullmatch(rf"error: (rank [01] on \S+: )?{re.escape(message)}", error)
    assert (empty, hint_line) == ("", f"hint: {hint}")


def test_the_sim_engine_is_refused_under_an_outer_launcher(run):
    before = (mpirun.find().path, "-n", "1", "--allow-run-as-root")
    done = run("all_reduce_perf", *ONE[:4], before=before)
    assert done.code == 3
    assert (
        "error: the sim engine runs in one process\n\nhint: start it without mpirun, with -g 4\n"
        in done.err
    )


def test_json_numbers_existing_files_and_lists_every_device(here, tmp_path):
    for engine in ("mpi", "sim"):
        assert here("all_gather_perf_mpi", *ONE, "-J", "out.json", BUSBW_ENGINE=engine).code == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert (tmp_path / "out.json.0").exists()
    assert document["version"] == 4
    assert [device["rank"] for device in document["config"]["devices"]] == [0, 1]
    assert document["config"]["ngpus"] == 2
    assert all(value.endswith("=***") for value in document["env"] if value.startswith("HOME="))
    assert here("all_gather_perf", *ONE, "-J", "out.txt").code == 0
    assert not (tmp_path / "out.txt").exists()


def test_hypercube_needs_a_power_of_two(here):
    done = here("hypercube_perf", "-b", "1K", "-e", "1K", "-g", "3")
    assert done.code == 0, done.err
    assert "nRanks 3 is not a power of 2, skipping" in done.out + done.err
    assert "# Avg bus bandwidth    : nan" in done.out
    twelve = here("hypercube_perf", *ONE)
    assert [len(fields) for fields in rows(twelve.out)] == [12]


def test_split_groups_print_once_with_the_groups_size(here):
    done = here(
        "all_reduce_perf",
        "-b",
        "1K",
        "-e",
        "1K",
        "-g",
        "4",
        NCCL_TESTS_SPLIT="MOD 2",
        BUSBW_ENGINE="mpi",
    )
    assert done.code == 0, done.err
    assert re.findall(r"Rank +(\d) Group +(\d)", done.out) == [
        ("0", "0"),
        ("1", "1"),
        ("2", "0"),
        ("3", "1"),
    ]
    (fields,) = rows(done.out)
    # factor 2(n-1)/n of 2 ranks is 1, of 4 would be 1.5
    assert abs(float(fields[7]) - float(fields[6])) < 0.02


@pytest.mark.parametrize(
    "words",
    ["-z 1 -m 3 -C 1 -a 3 -N 2 -c 3 -u 1 -S 1 -w 0 -M 1 -p 1", "-z 2 -I 1 -K 2", "-z 3 -n 1"],
)
def test_every_option_runs(here, words):
    done = here(
        "reduce_scatter_perf", "-b", "256", "-e", "1K", "-f", "4", "-g", "2", *words.split()
    )
    assert done.code == 0, done.err
    assert "# Out of bounds values : 0 OK" in done.out


def test_a_command_works_under_every_path_that_leads_to_it(run, tmp_path):
    """Wrappers resolve links, or have links of their own."""
    printed = run("busbw", "compat", "commands", python=PYTHON)
    assert printed.code == 0, printed.err
    (tmp_path / "linked").symlink_to("commands/all_reduce_perf")
    resolved = (tmp_path / "linked").resolve()
    assert resolved == tmp_path / "commands" / "all_reduce_perf"
    resolving = ["sh", "-c", 'exec "$(readlink -f "$0")" "$@"', tmp_path / "linked"]
    for words in ([resolved], [tmp_path / "linked"], resolving):
        done = run_words([*words, "--nope"])
        assert (done.returncode, done.stdout.splitlines()[1]) == (0, "USAGE: all_reduce_perf "), (
            done.stderr
        )


def test_a_link_to_busbw_that_is_resolved_names_the_way_out():
    done = run_words([sys.executable, "-m", "busbw", "-b", "8"])
    assert done.returncode == 2
    assert "of `busbw compat DIR`, not a link to busbw\n" in done.stderr


def run_words(words: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=compat_environment()
    )


def compat_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
