"""What `busbw deploy` says of hosts: command lines that --hosts accepts."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from busbw.cli import deploy as deploy_command
from busbw.cli.main import guarded
from busbw.launch import deploy
from busbw.launch.deploy import DeployOutcome
from busbw.launch.deployed import DeployedBusbw
from busbw.launch.hosts import parse_hosts


def test_hosts_of_the_next_commands_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def outcomes(hosts: Sequence[str], *_: object) -> list[DeployOutcome]:
        started = DeployedBusbw("1.2.3", "3.11.2", "/usr/bin/python3")
        return [
            DeployOutcome(tuple(hosts[:3]), started),
            DeployOutcome(tuple(hosts[3:]), None, "full", "rm"),
        ]

    monkeypatch.setattr(deploy, "deploy", outcomes)
    monkeypatch.setattr(deploy_command, "_file", lambda *_: (tmp_path, "/opt/busbw.pyz"))
    assert guarded(["deploy", "--hosts", "root@[fd00::1],[fd00::2],h1,[fd00::3],[fd00::4],h2"]) == 3
    output = capsys.readouterr()
    [done] = re.findall(r"run .*--hosts (.*)", output.out)
    [lost] = re.findall(r"deploy\s+to\s+--hosts\s+(.*)", output.err)
    names = [[host.name for host in parse_hosts(*shlex.split(text))] for text in (done, lost)]
    assert names == [["root@fd00::1", "fd00::2", "h1"], ["fd00::3", "fd00::4", "h2"]]


def test_a_file_that_is_no_single_file_is_refused_before_any_host_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(deploy, "deploy", lambda *_: pytest.fail("a host was asked"))
    (tmp_path / "busbw.pyz").write_text("not one")
    words = ["deploy", "--hosts", "h1", "--file", str(tmp_path / "busbw.pyz")]
    assert guarded(words) == 2
    assert "busbw.pyz" in capsys.readouterr().err
