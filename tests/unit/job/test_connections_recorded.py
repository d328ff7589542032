"""Faults of a link, as the TCP connections of a training on two hosts showed them.

Four ranks of minGPT on CPUs over 200 Mbit/s, read every 2 s; a host's sending rate, its packets or
its link were changed (benchmarks/job_faults.py).
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from busbw.host.tcp_sockets import TcpSocket
from busbw.job.live import path_causes
from busbw.job.live.connections import HostConnections
from busbw.job.live.judge import LOST_TIME, SLOW_LINK
from busbw.job.live.path_causes import Direction
from busbw.job.live.types import JobLook, LiveRank

RANKS = {"h1": (0, 1), "h2": (2, 3)}
# What was done to which host, from and until which second, and when it is known at the latest.
FAULTS = [
    ("lossy", "h1", 22.0, 27.5, 30.0),  # 2 % of its packets
    ("slow", "h2", 41.0, 52.0, 53.0),  # half of its rate
    ("silent", "h1", 61.0, 80.0, 69.0),  # all of its packets; the job ended
    ("slow", "h2", 103.0, 109.0, 109.0),  # other programs send
    ("slow", "h2", 123.0, 128.0, 129.0),  # a tenth of its rate
    ("slow", "h2", 143.0, 155.0, 153.0),  # half of its rate
    ("silent", "h1", 163.0, 180.0, 171.0),  # all of its packets
]
SHORT_S = 7.0
AFTER_S = 12.0  # the last 10 s are judged


def looks(recorded: Path) -> Iterator[tuple[float, JobLook]]:
    """The looks at both hosts, with their seconds."""
    look = JobLook()
    for host, ranks in RANKS.items():
        for rank in ranks:
            look.ranks[rank] = LiveRank(rank=rank, host=host, pid=1)
    hosts = {host: HostConnections(host) for host in RANKS}
    file = recorded / "job_connections" / "two_hosts.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            sockets = [
                TcpSocket(identity.to_bytes(4), *fields) for identity, *fields in record["sockets"]
            ]
            hosts[record["host"]].take(record["at_s"], sockets)
            look.host.paths = [path for host in hosts.values() for path in host.evidence()]
            if record["host"] == "h2":  # read after h1 in each turn
                yield record["at_s"], look


def named(look: JobLook) -> dict[str, Direction]:
    found = {
        "lossy": path_causes.lossy(look),
        "slow": path_causes.slow(look, SLOW_LINK, LOST_TIME),
        "silent": path_causes.silent(look),
    }
    return {rule: direction for rule, direction in found.items() if direction}


@pytest.mark.parametrize(("rule", "host", "begin_s", "end_s", "known_s"), FAULTS)
def test_the_host_of_a_fault_is_named_and_no_other(
    recorded: Path, rule: str, host: str, begin_s: float, end_s: float, known_s: float
) -> None:
    first_s = None
    found = set()
    for at_s, look in looks(recorded):
        if not begin_s <= at_s <= end_s + AFTER_S:
            continue
        for which, direction in named(look).items():
            assert which == rule
            found.add(direction.ranks)
            first_s = at_s if first_s is None else first_s
    assert first_s is not None and first_s <= known_s
    # at first, or of a short fault, both hosts
    assert found in ({RANKS[host]}, {RANKS[host], ()}) or (
        found == {()} and end_s - begin_s < SHORT_S
    )


def test_nobody_is_named_between_the_faults(recorded: Path) -> None:
    count = 0
    for at_s, look in looks(recorded):
        if not any(begin_s <= at_s <= end_s + AFTER_S for _, _, begin_s, end_s, _ in FAULTS):
            assert not named(look), at_s
            count += 1
    assert count > 10
