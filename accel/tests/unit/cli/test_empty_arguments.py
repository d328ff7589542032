"""An option that is given has a word, also in the commands of busbw-accel."""

from pathlib import Path

import pytest

from busbw.cli.main import guarded

TRAIN, PLAN = ("train", "mlp-small"), ("plan", "mlp-small")
SHARED = ("--hosts", "--hostfile", "--ifname", "--json", "--compare")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *(((*start, name, ""), name) for start in (TRAIN, PLAN) for name in SHARED),
        ((*TRAIN, "--accel", ""), "--accel"),
        ((*PLAN, "--try", ""), "--try"),
        (("horovodrun", "-H", "", "true"), "--hosts"),
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
    assert guarded(words) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == f"error: {option} '': it is empty"
    assert (captured.out, list(tmp_path.iterdir())) == ("", [])
