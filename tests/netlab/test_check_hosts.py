"""`busbw check --hosts` over emulated hosts: what differs between them, and a host that does not
answer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")


def check(lab: Any, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **lab.environment(), "PYTHONPATH": SOURCE}
    argv = lab.hosts[0].enter(sys.executable, "-m", "busbw", "check", *words)
    return subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def test_limit_of_one_host_is_the_difference(two_hosts):
    script = two_hosts.agent.read_text()
    two_hosts.agent.write_text(script.replace("hostname $name;", "hostname $name; ulimit -n 777;"))
    done = check(two_hosts, "--hosts", "10.77.0.1,10.77.0.2", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert [node["host"] for node in report["nodes"]] == [host.name for host in two_hosts.hosts]
    odd = {difference["fact"]: difference["odd"] for difference in report["differences"]}
    assert odd["open file limit"]["777"] == [two_hosts.hosts[1].name]


def test_host_that_does_not_answer_is_named_and_the_others_are_checked(two_hosts):
    done = check(two_hosts, "--wide", "--hosts", "10.77.0.1,10.77.0.2,10.77.0.9")
    assert done.returncode == 1
    assert done.stdout.startswith("3 nodes, 2 answered: ")
    assert (
        "FAIL    10.77.0.9: exit code 255: ssh: connect to host 10.77.0.9 port 22: No route to host"
        in done.stdout
    )
    brief = check(
        two_hosts, "--hosts", "10.77.0.1,10.77.0.9", "--only", "kernel-port-range", "--brief"
    )
    assert brief.returncode == 2
    assert brief.stdout == (
        "BUSBW CRITICAL - 2 nodes: no answer from 10.77.0.9; 1 pass"
        " | nodes=2 fail=0 unknown=0 warn=0 pass=1 silent=1 unreadable=0\n"
    )


def test_metrics_of_hosts_say_which_did_not_answer(two_hosts):
    words = ("--only", "kernel-port-range", "--format", "prometheus")
    done = check(two_hosts, "--hosts", "10.77.0.1,10.77.0.9", *words)
    assert done.returncode == 1
    name = two_hosts.hosts[0].name
    labels = f'host="{name}",id="BW120",check="kernel-port-range",layer="kernel",verdict="pass"'
    lines = done.stdout.splitlines()
    assert f"busbw_check_verdict{{{labels}}} 1" in lines
    assert f'busbw_check_answered{{host="{name}"}} 1' in lines
    assert 'busbw_check_answered{host="10.77.0.9"} 0' in lines


def test_no_host_that_answers_is_exit_3(two_hosts):
    done = check(two_hosts, "--hosts", "10.77.0.8,10.77.0.9", "--limit", "20")
    assert done.returncode == 3
    assert "none of 2 hosts answered" in done.stderr and "hint:" in done.stderr


def test_the_file_of_expectations_is_sent_to_the_hosts(two_hosts, tmp_path):
    (tmp_path / "much.toml").write_text("[memory]\nram_bytes = 999999999999999\n")
    words = (
        "--hosts",
        "10.77.0.1,10.77.0.2",
        "--expect",
        str(tmp_path / "much.toml"),
        "--only",
        "expect-memory",
        "--format",
        "json",
    )
    done = check(two_hosts, *words)
    assert done.returncode == 1, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert [
        (node["host"], [finding["verdict"] for finding in node["findings"]]) for node in nodes
    ] == [(host.name, ["fail"]) for host in two_hosts.hosts]
    assert all(
        "(much.toml line 2)" in node["findings"][0]["evidence"][0]["expected"] for node in nodes
    )
