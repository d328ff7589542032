"""`busbw check job` against a service that answers as NCCL's RAS does, and processes that really
are stopped.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from ras_service import TEXT_BEHIND, TEXT_FINE, as_json, comm, missing, rank, service

from busbw.cli.main import guarded

pytestmark = pytest.mark.usefixtures("ranks_are_forks")


@contextlib.contextmanager
def stopped() -> Iterator[int]:
    """A process that is stopped."""
    process = subprocess.Popen(["sleep", "60"])
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def check(capsys, *words: str, seconds: str = "0.2") -> tuple[int, str]:
    code = guarded(["check", "job", "--wide", "--interval", seconds, *words])
    return code, capsys.readouterr().out


def test_a_stopped_rank_is_named_in_the_first_line(capsys):
    with (
        stopped() as pid,
        service(as_json(comm(0xA1, [rank(0, 4)], [missing(1, pid=pid)]), comma=False)) as ras,
    ):
        code, out = check(capsys, "--ras", ras)
    line, *other_lines = out.splitlines()
    assert code == 1
    assert line.startswith(
        f"FAIL    rank 1 (pid {pid}, 127.0.0.1, GPU 1) does not answer NCCL's RAS: its process is"
        " stopped; 1 other rank launched AllReduce 4 of communicator 0xa1; for at least 0.2 s"
    )
    assert f"        fix: on 127.0.0.1: kill -CONT {pid}" in other_lines


def test_a_rank_that_is_behind_is_named(capsys):
    with service(as_json(comm(0xB2, [rank(0, 10), rank(1, 3), rank(2, 10)]))) as ras:
        code, out = check(capsys, "--ras", ras)
    assert code == 1
    assert (
        "rank 1 (pid 4001, 127.0.0.1, GPU 1) launched AllReduce 3 of communicator 0xb2, others"
        " AllReduce 10" in out.splitlines()[0]
    )


def test_who_waits_in_another_communicator_is_not_the_cause(capsys):
    """Rank 2 holds up rank 1 in the first communicator, so rank 1 is late for rank 0 in the
    second.
    """
    first = comm(0x1, [rank(1, 10), rank(2, 3)])
    second = comm(0x2, [rank(0, 20), rank(1, 19)])
    for order in ((first, second), (second, first)):
        with service(as_json(*order)) as ras:
            _, out = check(capsys, "--ras", ras)
        assert out.startswith("FAIL    rank 2 (pid 4002")


def test_counts_that_grow_are_a_job_that_moves(capsys):
    before, after = (as_json(comm(0xC, [rank(0, count), rank(1, count - 1)])) for count in (10, 11))
    with service(before, after) as ras:
        code, out = check(capsys, "--ras", ras)
    assert (code, out.splitlines()[0]) == (
        0,
        "PASS    the job makes progress: ranks launched collectives within 0.2 s",
    )


def test_equal_counts_that_rest_are_unknown(capsys):
    with service(as_json(comm(0xC, [rank(0, 10), rank(1, 10)]))) as ras:
        code, out = check(capsys, "--ras", ras)
    assert code == 3
    assert out.startswith("UNKNOWN no rank is late, and no rank is seen waiting")


def test_an_older_nccl_is_read_as_text(capsys):
    with service(TEXT_BEHIND, old=True) as ras:
        code, out = check(capsys, "--ras", ras)
    assert code == 1
    assert (
        "rank 1 (pid 4001, 127.0.0.1, GPU 1, NVML 5) launched AllReduce 12" in out.splitlines()[0]
    )
    with service(TEXT_FINE, old=True) as ras:
        code, out = check(capsys, "--ras", ras)
    assert (code, out.splitlines()[0]) == (
        3,
        (
            "UNKNOWN NCCL 2.27.5 reports no difference between ranks; only NCCL 2.28.7 and newer"
            " reports whether they progress"
        ),
    )


def test_without_ras_nothing_is_claimed(capsys):
    code, out = check(capsys, "--ras", "127.0.0.1:9")
    assert code == 3
    assert out.startswith(
        "UNKNOWN could not ask the job: NCCL RAS at 127.0.0.1:9: Connection refused"
    )


def test_a_service_that_stays_silent_is_left_in_time(capsys):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        code, out = check(capsys, "--ras", f"127.0.0.1:{mute.getsockname()[1]}")
    assert code == 3
    assert "no process answers" in out


def test_json_has_the_conclusion_and_its_evidence(capsys):
    with service(as_json(comm(0xB2, [rank(0, 10), rank(1, 3)]))) as ras:
        code, out = check(capsys, "--ras", ras, "--format", "json")
    report = json.loads(out)
    assert (code, report["schema"], report["verdict"]) == (1, "busbw.job/1", "fail")
    assert report["ras"]["comms"][0]["ranks"][1]["counts"]["AllReduce"] == 3
    assert report["hosts"]["127.0.0.1"]["watched"]["links"]


@pytest.mark.parametrize("address", ["nowhere", "h:port", "h:70000"])
def test_an_invalid_address_is_a_usage_error(capsys, address):
    assert guarded(["check", "job", "--ras", address]) == 2
    assert f"--ras {address}: not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["-oProxyCommand=touch${IFS}%s", "h1 -F%s", "h1;touch %s"])
def test_host_names_of_ras_are_not_options_of_ssh(capsys, tmp_path, monkeypatch, name):
    """Any user of a host may listen at the port of NCCL's RAS.

    The agent here writes down each line that it is called with.
    """
    calls, agent = tmp_path / "asked", tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    agent.chmod(0o755)
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(agent))
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(agent))
    name = name.replace("%s", str(tmp_path / "made"))
    with service(as_json(comm(1, [rank(0, 4, host="h2"), rank(1, 4, host=name)]))) as ras:
        _, out = check(capsys, "--ras", ras)
    assert f"{name} does not respond: exit code 127: this is not a host name" in out
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["h2"]


def test_control_characters_of_ras_reach_no_terminal(capsys):
    with service(as_json(comm(1, [rank(0, 4), rank(1, 3, host="h1\x1b[2J\r\x9b")]))) as ras:
        _, out = check(capsys, "--ras", ras)
    assert not set(out) & {"\x1b", "\r", "\x9b"}
    assert r"h1\u001b[2J\u000d\u009b" in out
