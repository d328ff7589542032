"""`busbw run` as a user meets it: real ranks, real files, the documented exit codes."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busbw.cli.main import guarded

PYTHON = sys.executable  # one that starts anew
pytestmark = pytest.mark.usefixtures("ranks_are_forks")

SOURCE = str(Path(__file__).parents[2] / "src")
SWEEP = ("-b", "8", "-e", "4K", "-f", "8")


def test_a_first_run_prints_a_table_and_findings(run, here):
    done = run("busbw", "run", "all-reduce", "--engine", "mpi", *SWEEP, "--json", "r.json")
    assert done.code == 0, done.err
    assert here("busbw", "show", "r.json").out == done.out
    assert "AllReduce, 2 x" in done.out
    assert len(re.findall(r"^ +\S+ \S?i?B +\S+ (?:us|ms|s) ", done.out, re.MULTILINE)) == 4
    assert "PASS    no wrong element in 8 checks" in done.out
    assert "nothing is" in done.out  # expected of CPUs, which have no ideal


@pytest.mark.parametrize("collective", ["allgather", "ReduceScatter", "alltoallv", "hypercube"])
def test_collectives_run_by_the_names_users_type(collective, capsys):
    assert (
        guarded(
            [
                "run",
                collective,
                "--engine",
                "sim",
                "-np",
                "2",
                "-b",
                "1K",
                "-e",
                "4K",
                "--format",
                "csv",
            ]
        )
        == 0
    )
    titles, *lines = capsys.readouterr().out.splitlines()
    rows = [dict(zip(titles.split(","), line.split(","), strict=True)) for line in lines]
    assert len(rows) == 6
    assert {row["wrong_elements"] for row in rows if row["placement"] == "out_of_place"} == {"0"}


def test_the_result_file_shows_again_in_every_format(here, tmp_path):
    done = here(
        "busbw",
        "run",
        "all_reduce",
        "--engine",
        "sim",
        "-np",
        "2",
        *SWEEP,
        "--json",
        "r.json",
        "--format",
        "nccl-tests",
    )
    again = here("busbw", "show", "r.json", "--format", "nccl-tests")
    assert done.code == again.code == 0, done.err
    assert again.out == done.out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["schema"] == "busbw.result/1"
    assert result["complete"] is True
    assert len(result["rows"]) == 4
    for name in ("table", "csv", "torch-csv", "markdown", "json", "nccl-tests-json"):
        shown = here("busbw", "show", "r.json", "--format", name)
        assert shown.code == 0 and shown.out


def test_json_keeps_an_existing_file_unless_forced(here, tmp_path):
    (tmp_path / "r.json").write_text("mine")
    words = ("busbw", "run", "all_reduce", "--engine", "sim", "-e", "8", "--json", "r.json")
    refused = here(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "error: --json r.json: the file exists" in refused.err
    assert (tmp_path / "r.json").read_text() == "mine"
    assert here(*words, "--force").code == 0
    assert json.loads((tmp_path / "r.json").read_text())["complete"] is True


def test_a_step_in_bytes_needs_no_factor(here):
    done = here(
        "busbw",
        "run",
        "all_reduce",
        "--engine",
        "sim",
        "-b",
        "1K",
        "-e",
        "4K",
        "-i",
        "1K",
        "--json",
        "-",
    )
    assert [row["size_bytes"] >> 10 for row in json.loads(done.out)["rows"]] == [1, 2, 3, 4]


def test_options_that_an_engine_ignores_are_refused(here):
    done = here(
        "busbw", "run", "all_reduce", "--engine", "mpi", "-np", "2", "-e", "8", "-R", "2", "-M", "1"
    )
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --local-register 2, --memory 1: not used by engine mpi")


@pytest.mark.usefixtures("other_hosts")
def test_ranks_on_other_hosts_choose_the_engine(here):
    done = here("busbw", "run", "all_reduce", "--hosts", "h1:2,h2:2", "--dry-run")
    assert done.code == 0
    assert '"engine"' not in done.out
    named_run = here(
        "busbw", "run", "all_reduce", "--hosts", "h1:2,h2:2", "--engine", "nccl", "--dry-run"
    )
    assert '"engine":"nccl"' in named_run.out


def test_json_to_stdout_is_json_alone(here):
    done = here(
        "busbw",
        "run",
        "broadcast",
        "--engine",
        "sim",
        "-np",
        "2",
        "-b",
        "64",
        "-e",
        "64",
        "-r",
        "all",
        "--json",
        "-",
    )
    assert [row["root"] for row in json.loads(done.out)["rows"]] == [0, 1]


@pytest.mark.parametrize(
    ("format_name", "engine"),
    [
        ("csv", "sim"),
        ("json", "sim"),
        ("nccl-tests", "sim"),
        ("table", "mpi"),
        ("nccl-tests", "mpi"),
    ],
)
def test_notes_are_on_stdout_only_in_nccl_tests_text(here, format_name, engine):
    done = here(
        "busbw",
        "run",
        "hypercube",
        "--engine",
        engine,
        "-np",
        "3",
        "-b",
        "64",
        "-e",
        "64",
        "--format",
        format_name,
    )
    note = "nRanks 3 is not a power of 2, skipping"
    assert done.code == 3
    if format_name == "nccl-tests":
        # a line for each process, as there
        assert done.out.count(note) == {"mpi": 3, "sim": 1}[engine]
        assert note not in done.err
    else:
        assert note not in done.out
        assert done.err.splitlines()[-4:-2] == [note, "error: no size was measured"]
    if format_name == "json":
        assert json.loads(done.out)["rows"] == []


def test_repeats_have_their_own_rows(here, tmp_path):
    words = shlex.split("-b 8 -e 64 -f 8 --iters 5 --repeats 2 -S 1 --json r.json --wide")
    done = here("busbw", "run", "all_reduce", "--engine", "sim", "-np", "2", *words)
    assert done.code == 0, done.err
    titles, _, *rows = done.out.split("\n\n")[1].splitlines()
    assert (titles.split()[0], titles.split()[-1]) == ("repeat", "timestamp")
    assert [row.split()[0] for row in rows] == ["0", "0", "1", "1"]
    stamps = [row["timestamp"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]]
    assert [row[-19:] for row in rows] == stamps
    lines = here("busbw", "show", "r.json", "--format", "csv").out.splitlines()
    assert [row["repeat"] for row in csv.DictReader(lines)] == list("00001111")


def test_wrong_data_ends_with_1_and_names_rank_and_offset(here):
    done = here(
        "busbw",
        "run",
        "all_reduce",
        "--engine",
        "sim",
        "-np",
        "4",
        *SWEEP,
        "--sim",
        "corrupt_rank=2,corrupt_offset=1",
        "--wide",
    )
    assert done.code == 1
    assert "first on rank 2 at element 1" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "all_redcue"), "unknown collective 'all_redcue'"),
        (("run", "all_reduce", "--no-such"), "No such option"),
        (("run", "all_reduce", "--iters"), "hint: busbw run --help"),
        (("run", "all_reduce", "-b", "2T"), "'2T' is not a size"),
        (
            ("run", "all_reduce", "-b", "64M", "-e", "1M"),
            "--minbytes 67108864 is larger than --maxbytes 1048576",
        ),
        (("run", "all_reduce", "-f", "1", "-i", "0"), "never reaches"),
        (("run", "all_reduce", "-b", "0"), "would never grow"),
        (("run", "all_reduce", "-d", "fp12"), "unknown data type 'fp12'"),
        (("run", "all_reduce", "-o", "xor"), "unknown reduction operator 'xor'"),
        (("run", "broadcast", "-np", "2", "-r", "5"), "not one of the 2 ranks"),
        (
            ("run", "all_reduce", "--json", "/no/such/dir/r.json"),
            "/no/such/dir/r.json: No such file or directory",
        ),
        (("run", "all_reduce", "--ideal", "fast"), "fast"),
        (("run", "all_reduce", "--hosts", "h1:h2"), "h1:h2"),
        (("run", "all_reduce", "--format", "xml"), "no view 'xml'"),
        (("show", "no-such-file"), "no-such-file: No such file"),
    ],
)
def test_usage_errors_have_a_hint_and_exit_2(words, message, capsys):
    assert guarded(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert [line[:6] for line in printed.err.splitlines() if line] == ["error:", "hint: "], (
        printed.err
    )


def test_an_unavailable_engine_names_reason_and_fix(here):
    done = here("busbw", "run", "all_reduce", "--engine", "nccl", PATH="/usr/bin:/bin")
    if done.code == 0:
        pytest.skip("there are GPUs here")
    assert done.code == 3
    assert "cannot run here" in done.err
    assert "nvidia-smi" in done.err or "busbw[cuda13]" in done.err


def test_a_foreign_and_a_truncated_file_are_named(here, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\x00\x01garbage")
    done = here("busbw", "show", "x.bin")
    assert done.code == 2
    assert "x.bin" in done.err


@pytest.mark.usefixtures("other_hosts")
def test_dry_run_prints_the_line_and_runs_nothing(here):
    done = here(
        "busbw", "run", "all_reduce", "--engine", "mpi", "--hosts", "h1:2,h2:2", "--dry-run"
    )
    assert done.code == 0
    assert "--host h1:2,h2:2" in done.out
    assert "-n 4" in done.out


@pytest.mark.usefixtures("other_hosts")
def test_the_chosen_network_reaches_every_rank(here):
    done = here(
        "busbw",
        "run",
        "all_reduce",
        "--engine",
        "nccl",
        "--hosts",
        "h1:1,h2:1",
        "--net",
        "socket",
        "--dry-run",
    )
    assert done.code == 0, done.err
    assert '"net":"socket"' in done.out


def test_inside_mpirun_each_process_is_a_rank_whatever_settings_say(run, tmp_path):
    from busbw.launch import mpirun

    (tmp_path / "busbw.toml").write_text('hosts = "not-there:2"\nengine = "sim"\nlimit = 50\n')
    outer = mpirun.command(mpirun.find(), [], 2)
    done = run(
        "busbw",
        "run",
        "all_gather",
        "-b",
        "1K",
        "-e",
        "1K",
        "--engine",
        "mpi",
        "--format",
        "nccl-tests",
        before=tuple(outer),
    )
    assert done.code == 0, done.err
    assert "#  Rank  1 Group  0" in done.out
    assert done.out.count("# Avg bus bandwidth") == 1


def test_an_interrupted_run_keeps_its_rows(run, tmp_path):
    link = tmp_path / "go.py"
    link.write_text("from busbw.cli.main import entry\nentry()\n")
    words = shlex.split("run all_reduce --engine mpi -b 1M -e 1M -N 0 --json r.json -c 0")
    process = subprocess.Popen(
        [sys.executable, str(link), *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    file, end = tmp_path / "r.json", time.monotonic() + 90
    while (
        not (file.exists() and len(json.loads(file.read_text())["rows"]) > 2)
        and time.monotonic() < end
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "saved in r.json" in err
    document = json.loads(file.read_text())
    assert len(document["rows"]) > 2
    assert document["complete"] is False


RANK = (
    "busbw.measure.rank",
    "busbw.measure.sweep",
    "busbw.tune.job",
    "busbw.pattern.replay.job",
    "busbw.engines.mpi",
)


SIMULATED = ("--engine", "sim", "-b", "1M", "-e", "1M", "--no-history")
NOT_SIMULATED = ("check", "pattern", "launch.mpirun", "measure.supervise", "measure.network")


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["-m", "busbw", "--version"], {"click", "typing", "msgspec", "busbw.cli.main"}),
        (
            ["-m", "busbw", "run", "--help"],
            {"numpy", "mpi4py", "torch", "msgspec", "busbw.measure", "busbw.model"},
        ),
        (
            ["-m", "busbw", "run", "all_reduce", *SIMULATED],
            {"mpi4py", *(f"busbw.{name}" for name in NOT_SIMULATED)},
        ),
        (["-c", f"import {', '.join(RANK)}"], {"click", "jinja2", "torch"}),
    ],
    ids=["version", "help", "simulated run", "rank"],
)
def test_start_imports_nothing_heavy(words, heavy):
    """Imports take most of a start: each way of a run imports only what it needs, and a rank no
    library of the command line.
    """
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [PYTHON, "-X", "importtime", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "busbw" in imported and imported & heavy == set()


def test_wrong_data_of_an_interrupted_run_is_not_forgotten(here, tmp_path):
    link = tmp_path / "go.py"
    link.write_text("from busbw.cli.main import entry\nentry()\n")
    words = shlex.split(
        "run all_reduce --engine sim -np 4 --sim corrupt_rank=2 -e 1M -N 0 --json r.json"
    )
    process = subprocess.Popen(
        [sys.executable, str(link), *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    file, end = tmp_path / "r.json", time.monotonic() + 90
    while (
        not (file.exists() and len(json.loads(file.read_text())["rows"]) > 2)
        and time.monotonic() < end
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130
    done = here("busbw", "show", "r.json")
    assert done.code == 1
    assert "FAIL    wrong data" in done.out


def test_a_reader_that_has_seen_enough_is_no_failure():
    done = subprocess.run(
        [
            "bash",
            "-c",
            (
                f"set -o pipefail; {sys.executable} -m busbw run all_reduce --engine sim -np 2 -e 1M"
                " -N 50 | head -3"
            ),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
    )
    progress = ("measured once: ", "note: all sizes were measured once; ")
    notes = [line for line in done.stderr.splitlines() if not line.startswith(progress)]
    assert (done.returncode, notes) == (0, [])
    assert len(done.stdout.splitlines()) == 3


def test_100000_ranks_are_refused(here):
    done = here("busbw", "run", "all_reduce", "--engine", "mpi", "-np", "100000")
    assert done.code == 2
    assert "--iters" in done.err


def test_uneven_groups_do_not_wait_for_each_other(here):
    for words, groups in (
        (("hypercube_perf", "-g", "4"), (1, 3)),
        (("broadcast_perf", "-g", "3", "-r", "-1"), (1, 2)),
    ):
        split = {"NCCL_TESTS_SPLIT": f"DIV {groups[1]}", "BUSBW_ENGINE": "mpi"}
        done = here(*words, "-b", "64", "-e", "64", **split)
        assert done.code == 3, done.out
        assert f"groups of {groups[0]}, {groups[1]} ranks" in done.err


def test_a_rank_that_stops_is_noticed_with_T(tmp_path):
    link = tmp_path / "go.py"
    link.write_text("from busbw.cli.main import entry\nentry()\n")
    words = shlex.split("run all_reduce --engine mpi -np 2 -b 1M -e 1M -N 0 -T 4 --json r.json")
    process = subprocess.Popen(
        [sys.executable, str(link), *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    file, end = tmp_path / "r.json", time.monotonic() + 90
    while (
        not (file.exists() and len(json.loads(file.read_text())["rows"]) > 2)
        and time.monotonic() < end
    ):
        time.sleep(0.1)
    pid = json.loads(file.read_text())["world"]["devices"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 3, err
    assert f"(pid {pid}) is stopped" in err
    stat = Path(f"/proc/{pid}/stat")
    # ended; whoever adopted it may not have looked yet
    assert not stat.exists() or " Z " in stat.read_text()
