"""Commands and files of other distributions: where they are missing, and where they are broken."""

import importlib.metadata
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core import extensions

ROOT = Path(__file__).parents[3]
TRAINING = ROOT / "benchmarks" / "train_2xh200_202611" / "25g_gpt2.json"
MEMORY_PLAN = ROOT / "benchmarks" / "offload_1xh100_202611" / "plan_8b.json"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The entry points of what is installed, none at first."""
    entries: list[EntryPoint] = []
    select = lambda **chosen: EntryPoints(entries).select(**chosen)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "entry_points", select)
    extensions.added.cache_clear()
    yield entries
    extensions.added.cache_clear()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("train", "mlp"), "train is a command of busbw-accel, which is not installed"),
        (("horovodrun", "-np", "2", "true"), "horovodrun is a command of busbw-accel, which is"),
        (
            ("show", str(TRAINING)),
            ".json: a training, which busbw-accel reads; it is not installed\n",
        ),
        (
            ("show", str(MEMORY_PLAN)),
            ".json: a memory plan, which busbw-accel reads; it is not installed\n",
        ),
        (("trian",), "no such command 'trian'"),
    ],
)
def test_what_is_not_installed_is_named_with_what_installs_it(
    words: tuple[str, ...],
    error: str,
    installed: list[EntryPoint],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(words) == 2
    message = capsys.readouterr().err
    assert error in message
    assert ("pip install 'busbw-accel[torch]'" in message) == ("busbw-accel" in error)


def test_a_command_of_a_distribution_is_listed(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(("--help",)) == 0
    assert "\n  train " not in capsys.readouterr().out
    extensions.added.cache_clear()
    installed.append(EntryPoint("a", "busbw_accel.cli.commands:ROWS", "busbw.commands"))
    pytest.importorskip("busbw_accel", reason="busbw-accel is not installed")
    assert guarded(("--help",)) == 0
    assert "\n  train " in capsys.readouterr().out


def test_a_distribution_that_cannot_be_imported_is_named(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint("a", "no_such_package.commands:ROWS", "busbw.commands"))
    assert guarded(("--help",)) == 2
    message = capsys.readouterr().err
    assert "no_such_package.commands:ROWS adds" in message or "no_such_package" in message
    assert "hint: install both in one version" in message
