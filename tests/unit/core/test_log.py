"""The log of -v and BUSBW_LOG: on stderr, with host and rank, one line a message, without
secrets.
"""

import logging
import os
import platform
import shlex
from collections.abc import Iterator

import pytest

from busbw.cli.main import guarded, main
from busbw.core import log

LOG = logging.getLogger("busbw.measure.anything")


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log of the tests' own process is off before and after."""
    monkeypatch.setenv(log.LOG_VARIABLE, "")
    yield
    log.switch_off()


def test_a_message_has_host_rank_and_module(capsys: pytest.CaptureFixture[str]) -> None:
    log.switch_on("debug", rank=3)
    LOG.debug("engine %s can run here", "mpi")
    assert (
        capsys.readouterr().err
        == f"[{platform.node()} rank 3] busbw.measure.anything: engine mpi can run here\n"
    )


def test_secrets_and_line_ends_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    log.switch_on("debug")
    LOG.debug("read %s", "--password=hunter2hunter2\nforged \x1b[31mline")
    printed = capsys.readouterr().err
    assert "hunter2" not in printed
    assert printed.count("\n") == 1
    assert "\x1b" not in printed


def test_messages_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    log.switch_on("info")
    LOG.debug("a detail")
    assert capsys.readouterr().err == ""


def test_an_unknown_level_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(log.LOG_VARIABLE, "loud")
    assert main(["busbw", "check", "engines"]) == 2
    assert "BUSBW_LOG=loud: no such level" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["show", "-v"], ["check", "command", "--verbose"]])
def test_every_command_has_the_option(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded([*words, "--help"]) == 0
    assert "-v, --verbose" in capsys.readouterr().out


def test_a_run_logs_the_files_it_wrote(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = f"{tmp_path}/run.json"
    monkeypatch.delenv(log.LOG_VARIABLE)
    assert (
        guarded([*shlex.split("run all_reduce --engine sim -np 2 -e 8 -v --json"), file, "--force"])
        == 0
    )
    assert f"busbw.measure.record: wrote {file}" in capsys.readouterr().err
    assert (os.environ.get(log.LOG_VARIABLE), logging.getLogger("busbw").handlers) == (None, [])
