"""Samples a running job: NCCL's RAS, then all hosts for some seconds, then RAS again."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from busbw.job import host as one_host
from busbw.job.diagnose import Seen, conclude
from busbw.job.ras_report import parse
from busbw.job.types import Ask, HostSeen, JobReport, RasSeen
from busbw.launch import remote
from busbw.pattern.pending_collective import Outstanding

LOCAL = "localhost"
STARTS_S = 20.0  # for ssh and Python, in addition to the host's own work


def examine(
    hosts: Sequence[str], ras: str, seconds: float, dumps: list[Outstanding], unread: list[str]
) -> JobReport:
    """The conclusion about the job on `hosts`; by default the hosts that RAS names, else this one.

    RAS is queried at `ras` (HOST:PORT) from here, else by each host until one answers. Takes at
    most two queries plus `seconds`.
    """
    before, asked, why = _first(hosts, ras)
    named = (
        list(hosts)
        or list(dict.fromkeys(rank.host for rank in before.processes() if rank.host))
        or [LOCAL]
    )
    if asked == LOCAL and not hosts:  # RAS names addresses
        asked = next((name for name in named if remote.is_local(name)), LOCAL)
        named += [] if asked in named else [asked]
    pids = [rank.pid for rank in before.processes() if rank.pid > 0]
    asks = {
        name: Ask(seconds=seconds, pids=pids, ras=ras if name == asked else None) for name in named
    }
    found, silent = _ask(asks, seconds)
    text, gone = _again(found, asked, ras if before.nccl else "")
    after = parse(text)
    no_ras = why or ([gone] if gone else [])
    unread = [*unread, *(f"{name}: {text}" for name, one in found.items() for text in one.unread)]
    seen = Seen(
        seconds=seconds,
        before=before,
        after=after,
        outstanding=dumps,
        hosts=found,
        silent=silent,
        no_ras="; ".join(no_ras),
        unread=unread,
    )
    report = JobReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        ras=after if after.nccl else before,
    )
    report.hosts, report.silent, report.outstanding = found, silent, dumps
    conclude(seen, report)
    return report


def _again(found: dict[str, HostSeen], asked: str, ras: str) -> tuple[str, str]:
    """The second report, and why there is none."""
    if ras:
        return one_host.report(ras)
    return (found[asked].ras, found[asked].no_ras) if asked in found else ("", "")


def _first(hosts: Sequence[str], ras: str) -> tuple[RasSeen, str, list[str]]:
    """The first report, the host that gave it ('' if it was asked from here), and why there is
    none.
    """
    if ras:
        text, why = one_host.report(ras)
        seen = parse(text)
        return seen, "", [] if seen.nccl else [why or f"NCCL RAS at {ras}: unknown report"]
    found, _ = _ask(dict.fromkeys(hosts or [LOCAL], Ask(ras="")), 0)
    for name, one in found.items():
        seen = parse(one.ras)
        if seen.nccl:
            return seen, name, []
    return (
        RasSeen(),
        "",
        [f"{name}: {one.no_ras or 'unknown report of NCCL RAS'}" for name, one in found.items()],
    )


def _ask(asks: dict[str, Ask], seconds: float) -> tuple[dict[str, HostSeen], dict[str, str]]:
    """The answers of the hosts, and why others gave none."""
    words = [sys.executable, "-m", one_host.__name__]
    given = {name: msgspec.json.encode(ask) for name, ask in asks.items()}
    found, silent = dict[str, HostSeen](), dict[str, str]()
    for done in remote.run_each(
        dict.fromkeys(asks, words), seconds + one_host.RAS_S + STARTS_S, given
    ):
        try:
            found[done.host] = done.answer(HostSeen)
        except ValueError as error:
            silent[done.host] = done.problem or f"unexpected answer: {error}"
    return found, silent
