"""Asking hosts for process states, with scripts as launch agents: unreachable hosts, and hosts that cannot answer."""

import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.launch import agent

Agent = Callable[[str], None]


@pytest.fixture
def agent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Replaces the agent by a script: $1 is the host, and the command for that host's login shell follows."""

    def put(script: str) -> None:
        file = tmp_path / "agent"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(file))

    return put


def test_process_states_are_read_with_any_shell(agent_does: Agent) -> None:
    for login in filter(shutil.which, ("sh", "bash", "dash", "csh", "tcsh", "fish")):
        agent_does(f'shift; exec {login} -c "$*"')
        found = agent.states({"h1": [os.getpid(), 4999999]}, 5)["h1"]
        assert found is not None
        assert found.keys() == {os.getpid(), 4999999}
        assert found[os.getpid()] in "RS"
        assert found[4999999] == ""


def test_the_login_shell_gets_one_plain_command(agent_does: Agent, tmp_path: Path) -> None:
    agent_does(f'shift; echo "$*" >{tmp_path / "words"}')
    agent.states({"h1": [1]}, 5)
    words = shlex.split((tmp_path / "words").read_text())
    assert words[:2] == ["sh", "-c"]
    assert len(words) == 3


@pytest.mark.parametrize(
    ("script", "expected"),
    [("exit 255", None), ("exec sleep 60", None), ("exit 1", {}), ("exit 127", {})],
    ids=["ssh gives up", "no answer", "an error there", "no shell there"],
)
def test_only_silence_or_ssh_failure_mean_unreachable(agent_does: Agent, script: str, expected: object) -> None:
    agent_does(script)
    assert agent.states({"h1": [1]}, 0.5) == {"h1": expected}


def test_a_missing_agent_gives_no_host_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/no/such/agent")
    assert agent.states({"h1": [1]}, 1) == {"h1": {}}


def test_background_processes_of_the_agent_are_not_awaited(agent_does: Agent) -> None:
    agent_does('sleep 20 & shift; exec sh -c "$*"')  # a connection kept open for reuse holds inherited descriptors
    assert (agent.states({"h1": [os.getpid()]}, 15)["h1"] or {}).keys() == {os.getpid()}, "no answer would be the end of the limit"


def test_all_hosts_share_one_time_limit(agent_does: Agent) -> None:
    agent_does('case $1 in dead*) exec sleep 60;; esac; shift; exec sh -c "$*"')
    hosts = [*(f"dead{i}" for i in range(40)), "h1"]
    start = time.monotonic()
    found = agent.states({host: [os.getpid()] for host in hosts}, 2)
    assert time.monotonic() - start < 40, "one after the other they take 80 s"
    assert [host for host, answer in found.items() if answer is None] == hosts[:-1]
    assert (found["h1"] or {}).keys() == {os.getpid()}
