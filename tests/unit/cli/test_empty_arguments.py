"""An option that is given has a word: an empty one is a variable of the shell that was not set,
and must not mean something else.
"""

from pathlib import Path

import pytest

from busbw.cli.main import guarded

RUN = ("run", "all_reduce", "--engine", "sim", "-e", "8")
FILE = "r.json"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *(((*RUN, name), name) for name in ("--hosts", "--hostfile", "--ifname", "--json")),
        (("run", "all_reduce", "-np", "2", "--engine"), "--engine"),
        (("show", FILE, "--collective"), "--collective"),
        (("compare", FILE, FILE, "--collective"), "--collective"),
        (("report", FILE, "--output"), "--output"),
        (("report", FILE, "--collective"), "--collective"),
        (("history", "add", FILE, "--db"), "--db"),
        (("history", "--machine"), "--machine"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_option_without_a_word_is_refused(
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = guarded(words if "" in words else (*words, ""))
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.splitlines()[0] == f"error: {option} '': it is empty"
    assert "\nhint: give it a value, or leave it out" in captured.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["-o", "-d", "-r", "-b", "--format", "--check"])
def test_options_of_a_sweep_without_a_word_are_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded((*RUN, name, "")) == 2
    captured = capsys.readouterr()
    assert (captured.out, "\nhint: " in captured.err) == ("", True)
