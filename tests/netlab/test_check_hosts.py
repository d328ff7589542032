"""`busbw check --hosts` over emulated hosts: what differs between them, and a host that does not
answer.
"""

import json

import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

BOTH = ("--hosts", "10.77.0.1,10.77.0.2")
ONE_SILENT = ("--hosts", "10.77.0.1,10.77.0.9", "--only", "kernel-port-range")


def test_limit_of_one_host_is_the_difference_and_expectations_are_sent(here, two_hosts, tmp_path):
    script = two_hosts.agent.read_text()
    second = two_hosts.hosts[1].name
    limit = f"hostname $name; [ $name != {second} ] || ulimit -n 777;"
    two_hosts.agent.write_text(script.replace("hostname $name;", limit))
    expectations = tmp_path / "much.toml"
    expectations.write_text("[memory]\nram_bytes = 999999999999999\n")
    done = here(two_hosts, "check", *BOTH, "--expect", str(expectations), "--format", "json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert [node["host"] for node in report["nodes"]] == [host.name for host in two_hosts.hosts]
    odd = {difference["fact"]: difference["odd"] for difference in report["differences"]}
    assert odd["open file limit"]["777"] == [second]
    for node in report["nodes"]:
        (finding,) = [one for one in node["findings"] if one["name"] == "expect-memory"]
        assert finding["verdict"] == "fail"
        assert "(much.toml line 2)" in finding["evidence"][0]["expected"]
    compared = here(two_hosts, "check", *BOTH, "--differences")
    assert compared.returncode == 1
    (line,) = [line for line in compared.stdout.splitlines() if "open file limit" in line]
    assert f"777 on {second}" in line


def test_host_that_does_not_answer_is_named_and_the_others_are_checked(here, two_hosts):
    done = here(two_hosts, "check", "--wide", "--hosts", "10.77.0.1,10.77.0.2,10.77.0.9")
    assert done.returncode == 1
    assert done.stdout.startswith("3 nodes, 2 answered: ")
    assert (
        "FAIL    10.77.0.9: exit code 255: ssh: connect to host 10.77.0.9 port 22: No route to host"
        in done.stdout
    )
    brief = here(two_hosts, "check", *ONE_SILENT, "--nagios")
    assert brief.returncode == 2
    assert brief.stdout == (
        "BUSBW CRITICAL - 2 nodes: no answer from 10.77.0.9; 1 pass"
        " | nodes=2 fail=0 unknown=0 warn=0 pass=1 silent=1 unreadable=0\n"
    )
    metrics = here(two_hosts, "check", *ONE_SILENT, "--format", "prometheus")
    assert metrics.returncode == 1
    name = two_hosts.hosts[0].name
    labels = f'host="{name}",id="BW120",check="kernel-port-range",layer="kernel",verdict="pass"'
    lines = metrics.stdout.splitlines()
    assert f"busbw_check_verdict{{{labels}}} 1" in lines
    assert f'busbw_check_answered{{host="{name}"}} 1' in lines
    assert 'busbw_check_answered{host="10.77.0.9"} 0' in lines


def test_no_host_that_answers_is_exit_3(here, two_hosts):
    done = here(two_hosts, "check", "--hosts", "10.77.0.8,10.77.0.9", "--limit", "20")
    assert done.returncode == 3
    assert "none of 2 hosts answered" in done.stderr and "hint:" in done.stderr


def test_a_snapshot_of_each_host_is_saved_and_later_compared(here, two_hosts, tmp_path):
    week = tmp_path / "weeks" / "w1"
    saving = [*BOTH[:1], f"{BOTH[1]},10.77.0.9", "--save", str(week), "--only", "disk-space"]
    done = here(two_hosts, "check", "--wide", *saving)
    assert done.returncode == 1 and "FAIL    10.77.0.9: exit code 255: ssh: " in done.stdout
    assert sorted(file.name for file in week.iterdir()) == ["10.77.0.1.jsonl", "10.77.0.2.jsonl"]
    refused = here(two_hosts, "check", *saving)
    assert refused.returncode == 2 and "10.77.0.1.jsonl: the file exists" in refused.stderr
    done = here(two_hosts, "check", *BOTH, "--since", str(week), "--layer", "kernel", "--wide")
    assert done.stdout.startswith("2 nodes, 2 answered: "), done.stderr
    assert "NO DATA 10" not in done.stdout and "judged by their totals" not in done.stdout
    same = here(two_hosts, "compare", str(week), str(week))
    assert same.returncode == 0 and "2 nodes compared" in same.stdout
