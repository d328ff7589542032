"""Arguments that `busbw tune` refuses before it starts any rank."""

from pathlib import Path

import pytest

from busbw.cli.main import main

SIM = ("--engine", "sim", "-np", "4")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("alltoall",), 2, "alltoall: NCCL has no choice of algorithms"),
        (("all_reduce", "--engine", "mpi"), 2, "--engine mpi has no algorithms to choose from"),
        (("all_reduce", *SIM, "-d", "all"), 2, "--datatype all: a tuning is of one"),
        (("all_reduce", *SIM, "-f", "1", "-i", "1K"), 2, "more than 64 sizes"),
        (("all_reduce", "--engine", "sim", "-np", "1"), 3, "one rank sends nothing"),
        ((), 2, "a collective or --recheck FILE is needed"),
        (("all_reduce", "--recheck", "table"), 2, "a collective or --recheck FILE is needed"),
        (("--recheck", "missing", *SIM), 2, "missing: No such file"),
        (
            ("--recheck", "other", *SIM),
            2,
            "other: line 1 is not `busbw-tuner-table 1`: 2 4 1024 1 2",
        ),
        (("--recheck", "bare", *SIM), 2, "bare: it does not say for which device"),
        (("--recheck", "unsafe", *SIM), 2, "unsafe: LD_PRELOAD is not NCCL_MIN_NCHANNELS"),
        (
            ("--recheck", "unmeasured", *SIM),
            2,
            "unmeasured: 'about measured all_reduce float sum 8 x4' is no sweep",
        ),
        (
            ("--recheck", "alltoall", *SIM),
            2,
            "alltoall: 'about measured alltoall float sum 8 64 x2': alltoall: NCCL has no choice",
        ),
        (
            ("--recheck", "endless", *SIM),
            2,
            "endless: 'about measured all_reduce float sum 8 9999999 +1': more than 64 sizes",
        ),
        (
            ("all_reduce", "--output", "/no/such/folder/table", *SIM),
            2,
            "--output /no/such/folder/table: No such file",
        ),
        (
            ("--recheck", "unsafe", *SIM, "-b", "8", "--output", "new", "--variables"),
            2,
            "--output, --variables, --minbytes: --recheck measures",
        ),
        (
            ("all_reduce", *SIM, "--variables", "--no-settings"),
            2,
            "--settings: --variables writes no table",
        ),
        (("all_reduce", *SIM, "-b", "1K", "-e", "1M", "-i", "1K"), 2, "more than 64 sizes"),
        (("all_reduce", "--sim", "ll=2"), 2, "--sim ll=2: --engine is auto"),
    ],
)
def test_bad_input_is_explained(
    words: tuple[str, ...],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").write_text("2 4 1024 1 2\n")
    Path("bare").write_text("busbw-tuner-table 1\n2 * all_reduce 8 8 Ring LL *\n")
    head = (
        "busbw-tuner-table 1\n"
        "about device GPU\n"
        "about ranks 4\n"
        "about hosts 1\n"
        "about nccl 0\n"
        "about network -\n"
    )
    Path("unsafe").write_text(f"{head}about variable LD_PRELOAD=x.so\n")
    Path("unmeasured").write_text(f"{head}about measured all_reduce float sum 8 x4\n")
    for name, swept in {
        "alltoall": "alltoall float sum 8 64 x2",
        "endless": "all_reduce float sum 8 9999999 +1",
    }.items():
        Path(name).write_text(f"{head}about measured {swept}\n")
    exit_code = main(["busbw", "tune", *words])
    err = capsys.readouterr().err
    assert (exit_code, message in err) == (code, True), err


@pytest.mark.parametrize(
    ("name", "value"), [("BUSBW_TUNER_TABLE", "/tmp/table"), ("NCCL_COMM_BLOCKING", "0")]
)
def test_a_variable_that_changes_how_nccl_chooses_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["busbw", "tune", "all_reduce", *SIM]) == 2
    message = capsys.readouterr().err
    assert f"{name}={value} is set" in message and f"hint: unset {name}" in message


def test_a_rank_of_another_job_does_not_start_ranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["busbw", "tune", "all_reduce", *SIM]) == 2
    assert "start it without mpirun" in capsys.readouterr().err
