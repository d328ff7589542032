"""`busbw horovodrun` takes horovodrun's options, and programs it starts import busbw's horovod."""

import os
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from busbw.cli.main import main
from busbw.core.errors import Exit
from busbw.core.version import __version__
from busbw_accel.cli.horovodrun import FLAGS, VALUES
from busbw_accel.horovod.variables import SETTINGS


def test_every_option_sets_a_variable_that_has_an_effect() -> None:
    assert {row[1] for row in (*VALUES, *FLAGS)} <= {setting.name for setting in SETTINGS}


def test_tuning_reaches_the_ranks_as_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own")
    words = (
        "horovodrun -np 3 --dry-run --fusion-threshold-mb 2 --timeline-filename t.json"
        " --no-stall-check python train.py --cycle-time-ms 7"
    )
    assert main(["busbw", *words.split()]) == Exit.OK
    line = capsys.readouterr().out.split()
    assert line[1:3] == ["-n", "3"]
    set_to = [word for before, word in pairwise(line) if before == "-x"]
    folder, _, user_path = set_to.pop(0).removeprefix("PYTHONPATH=").partition(":")
    assert (Path(folder) / "horovod" / "__init__.py").exists() and user_path == "/own"
    assert set_to == [
        "HOROVOD_TIMELINE=t.json",
        "HOROVOD_FUSION_THRESHOLD=2097152",
        "HOROVOD_STALL_CHECK_DISABLE=1",
    ]
    assert line[-4:] == ["python", "train.py", "--cycle-time-ms", "7"]


def test_options_of_job_scripts_without_effect_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "-np 2 --verbose --start-timeout 60 --autotune --cycle-time-ms 2.5"
        " --mpi-args=--timestamp-output --dry-run python train.py"
    )
    assert main(["busbw", "horovodrun", *words.split()]) == Exit.OK
    out, err = capsys.readouterr()
    starting = "--start-timeout has no effect: it limits checks of hosts, which are not made"
    assert err.splitlines() == [
        "note: --verbose has no effect",
        f"note: {starting}",
        "note: --autotune has no effect",
    ]
    assert out.split()[1:3] == ["--timestamp-output", "-n"] and " -x HOROVOD_CYCLE_TIME=2.5 " in out


def test_hosts_get_communication_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMPI_MCA_plm", raising=False)  # of images without ssh
    monkeypatch.setenv("LIGHT_TOPK_ALLREDUCE", "1")
    path = f"/venv/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("AWS_SECRET", "x")
    assert (
        main(["busbw", "horovodrun", "-H", "h1:2,h2:1", "--dry-run", "python", "train.py"])
        == Exit.OK
    )
    line = capsys.readouterr().out
    assert " -n 3 " in line and "--host h1:2,h2:1" in line and "-x LIGHT_TOPK_ALLREDUCE=1" in line
    assert shlex.quote(f"PATH={path}") in line
    assert "AWS_SECRET" not in line


def test_the_version_is_that_of_busbw_and_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("-v", "--version"):
        assert main(["busbw", "horovodrun", option]) == Exit.OK
        assert capsys.readouterr().out == f"busbw {__version__}, with the API of Horovod 0.28.1\n"


def test_the_elastic_timeout_may_be_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *shlex.split("busbw horovodrun -np 1 --host-discovery-script"),
        "echo localhost:0",
        "true",
    ]
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "soon")
    assert main(words) == Exit.USAGE
    assert capsys.readouterr().err.startswith("error: HOROVOD_ELASTIC_TIMEOUT=soon is invalid")
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "1")
    assert main(words) == Exit.UNKNOWN
    assert capsys.readouterr().err.startswith(
        "error: 0 of at least 1 workers are ready, of 0 slots, 1 s after a change"
    )


def test_check_build_prints_horovodruns_form(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert main(["busbw", "horovodrun", "--check-build"]) == Exit.OK
    sections = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    assert sections[0] == [f"busbw v{__version__}, with the API of Horovod v0.28.1:"]
    assert [block[0] for block in sections[1:]] == [
        "Available Frameworks:",
        "Available Controllers:",
        "Available Tensor Operations:",
    ]
    assert sections[1][1:] == ["    [ ] TensorFlow", "    [X] PyTorch", "    [ ] MXNet"]
    assert sections[2][1:] == ["    [ ] MPI", "    [X] Gloo"]
    assert [line[8:] for line in sections[3][1:]] == [
        "NCCL",
        "DDL",
        "CCL",
        "MPI",
        "Gloo",
    ] and "    [X] Gloo" in sections[3]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("python train.py", "error: no number of ranks is given"),
        ("-np 0 python train.py", "error: Invalid value"),
        ("-np 2 --max-np 4 python train.py", "error: --max-np is for elastic jobs"),
        ("-np 2 --reset-limit 3 python train.py", "error: --reset-limit is for elastic jobs"),
        ("-np 2 --min-np 3 python train.py", "error: --min-np 3, -np 2 do not ascend"),
        (
            "-np 4 --min-np 1 --max-np 3 python train.py",
            "error: --min-np 1, -np 4, --max-np 3 do not ascend",
        ),
        (
            "-np 2 --min-np 1 --blacklist-cooldown-range 9 3 python train.py",
            "error: --blacklist-cooldown-range 9 3 is empty",
        ),
        (
            "-np 2 --min-np 1 -H h1:2 python train.py",
            "error: h1 is not this host, and the workers of an elastic job run on one host",
        ),
        (
            "-np 4 --min-np 2 -H localhost:2 python train.py",
            "error: 2 slots are too few for 4 ranks",
        ),
        (
            "-np 2 --blacklist-cooldown-range 1 2 python train.py",
            "error: --blacklist-cooldown-range is for elastic jobs",
        ),
        (
            "-np 2 --host-discovery-script 'a python train.py",
            "error: --host-discovery-script 'a: No closing quotation",
        ),
        (
            "-np 2 --min-np 1 --dry-run python train.py",
            "error: --dry-run is for mpirun, which an elastic job does not use",
        ),
        ("-np 2 --mpi-args=' python train.py", "error: --mpi-args ': No closing quotation"),
        (
            "-np 2 -p 2222 python train.py",
            "error: --ssh-port is not supported\n\nhint: set Port in ~/.ssh/config",
        ),
        (
            "-np 2 --output-filename out python train.py",
            "error: --output-filename is not supported\n\nhint: --mpi-args=",
        ),
        (
            "-np 2 --host-discovery-script /bin/false python train.py",
            "error: --host-discovery-script /bin/false: exit code 1",
        ),
        (
            "-np 2 --host-discovery-script ./none python train.py",
            "error: --host-discovery-script ./none: exit code 127: ./none: No such file",
        ),
        (
            "-np 2 --min-np 1 ./no-such-program",
            "error: ./no-such-program cannot be run: No such file",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    args: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["busbw", "horovodrun", *args.split()]) == Exit.USAGE
    assert capsys.readouterr().err.startswith(message)
