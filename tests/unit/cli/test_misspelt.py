"""A misspelt command or option is answered with the closest known one."""

from pathlib import Path

import pytest

from busbw.cli.main import guarded


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["rnu"], "no such command 'rnu'", "did you mean run? busbw --help lists all commands"),
        (
            ["comprae", "a.json"],
            "no such command 'comprae'",
            "did you mean compare? busbw --help lists all commands",
        ),
        (
            ["help", "check", "lanch"],
            "busbw check has no part 'lanch'",
            "did you mean launch? busbw check --help lists its parts",
        ),
        (
            ["help", "rnu"],
            "no such command 'rnu'",
            "did you mean run? busbw --help lists all commands",
        ),
        (["help", "run", "x"], "busbw run has no part 'x'", "busbw run --help"),
        (
            ["check", "BW070"],
            "busbw check has no part 'BW070'",
            "for a check by its name: busbw check --only BW070, or busbw check explain BW070",
        ),
        (
            ["check", "gpu-xdi"],
            "busbw check has no part 'gpu-xdi'",
            "for a check by its name: busbw check --only gpu-xid, or busbw check explain gpu-xid",
        ),
        (
            ["check", "explain", "inforom"],
            "no such check 'inforom'",
            "did you mean gpu-inforom? busbw check --list names all",
        ),
        (
            ["check", "--only", "gpu_xid"],
            "no such check 'gpu_xid'",
            "did you mean gpu-xid? busbw check --list names all",
        ),
        *(
            (
                [*command, "--output", word],
                f"--output {word}: the name of a format, not a file",
                f"--format {word}, or --output ./{word} for a file of that name",
            )
            for command, word in (
                (["show", "run.json"], "json"),
                (["show", "run.json"], "nccl-tests"),
                (["check"], "table"),
                (["check"], "junit"),
            )
        ),
        (
            ["report", "run.json", "--output", "json"],
            "--output json: the name of a format, not a file",
            "--output ./json for a file of that name",
        ),
        (
            ["capture", "--output", "json", "python3", "train.py"],
            "--output json: the name of a format, not a file",
            "--output ./json for a file of that name",
        ),
        (
            ["run", "all_reduce", "--json", "table"],
            "--json table: the name of a format, not a file",
            "--format table, or --json ./table for a file of that name",
        ),
        (
            ["run", "all_reduce", "-o", "json"],
            "--op json: the name of a format, not a reduction operator",
            "--format json",
        ),
        (
            ["compare", "-o", "json", "a.json", "b.json"],
            "No such option '-o'.",
            "busbw compare --format json for JSON, > FILE for a file",
        ),
        (["frobnicate"], "no such command 'frobnicate'", "busbw --help lists all commands"),
    ],
)
def test_misspelt_command(
    args: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(args) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n\nhint: {hint}\n")


@pytest.mark.parametrize("name", ["./json", "json.txt", "tables"])
def test_a_file_named_otherwise_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert guarded(["run", "all_reduce", "--engine", "sim", "-e", "8", "--json", name]) == 0
    assert Path(name).exists()


def test_misspelt_option_keeps_the_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["run", "all_reduce", "--fromat", "csv"]) == 2
    error = capsys.readouterr().err
    assert "'--fromat'" in error.splitlines()[0] and "'--format'" in error.splitlines()[0]
    assert error.endswith("\n\nhint: busbw run --help\n")
