"""A misspelt command or option is answered with the closest known one."""

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
        (["frobnicate"], "no such command 'frobnicate'", "busbw --help lists all commands"),
    ],
)
def test_misspelt_command(
    args: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(args) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n\nhint: {hint}\n")


def test_misspelt_option_keeps_the_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["run", "all_reduce", "--fromat", "csv"]) == 2
    error = capsys.readouterr().err
    assert "'--fromat'" in error.splitlines()[0] and "'--format'" in error.splitlines()[0]
    assert error.endswith("\n\nhint: busbw run --help\n")
