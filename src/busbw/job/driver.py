"""Samples a running job: NCCL's RAS, then all hosts for some seconds, then RAS again."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from busbw.core import program
from busbw.job import host as host_data
from busbw.job.diagnose import conclude
from busbw.job.ras_report import parse
from busbw.job.types import LOCAL, HostRequest, JobData, JobHostStatus, JobReport, RasReport
from busbw.launch import remote
from busbw.pattern.pending_collective import Outstanding

STARTS_S = 20.0  # for ssh and Python, in addition to the host's own work


def examine(
    hosts: Sequence[str], ras: str, seconds: float, dumps: list[Outstanding], unread: list[str]
) -> JobReport:
    """The conclusion about the job on `hosts`; by default the hosts that RAS names, else this one.

    RAS is queried at `ras` (HOST:PORT) from here, else by each host until one answers. Takes at
    most two queries plus `seconds`.
    """
    before, asked, why = _first_report(hosts, ras)
    names = list(hosts)
    if not names:
        names = list(dict.fromkeys(rank.host for rank in before.processes() if rank.host))
    if not names:
        names = [LOCAL]
    if asked == LOCAL and not hosts:  # RAS names addresses
        asked = next((name for name in names if remote.is_local(name)), LOCAL)
        if asked not in names:
            names.append(asked)
    pids = [rank.pid for rank in before.processes() if rank.pid > 0]
    asks = {
        name: HostRequest(seconds=seconds, pids=pids, ras=ras if name == asked else None)
        for name in names
    }
    answers, silent = _ask(asks, seconds)
    text, lost = _second_report(answers, asked, ras if before.nccl else "")
    after = parse(text)
    if not why and lost:
        why = [lost]
    unread_on_hosts = [f"{name}: {text}" for name, host in answers.items() for text in host.unread]
    job = JobData(
        seconds=seconds,
        before=before,
        after=after,
        outstanding=dumps,
        hosts=answers,
        silent=silent,
        no_ras="; ".join(why),
        unread=[*unread, *unread_on_hosts],
    )
    report = JobReport(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        ras=after if after.nccl else before,
        outstanding=dumps,
        hosts=answers,
        silent=silent,
    )
    conclude(job, report)
    return report


def _first_report(hosts: Sequence[str], ras: str) -> tuple[RasReport, str, list[str]]:
    """The first report, its host ('' if asked from here), and why there is none."""
    if ras:
        text, why = host_data.report(ras)
        report = parse(text)
        return report, "", [] if report.nccl else [why or f"NCCL RAS at {ras}: unknown report"]
    answers, _ = _ask(dict.fromkeys(hosts or [LOCAL], HostRequest(ras="")), 0)
    for name, host in answers.items():
        report = parse(host.ras)
        if report.nccl:
            return report, name, []
    reasons = [
        f"{name}: {host.no_ras or 'unknown report of NCCL RAS'}" for name, host in answers.items()
    ]
    return RasReport(), "", reasons


def _second_report(answers: dict[str, JobHostStatus], asked: str, ras: str) -> tuple[str, str]:
    """The text of the second report, and why there is none."""
    if ras:
        return host_data.report(ras)
    return (answers[asked].ras, answers[asked].no_ras) if asked in answers else ("", "")


def _ask(
    asks: dict[str, HostRequest], seconds: float
) -> tuple[dict[str, JobHostStatus], dict[str, str]]:
    """The answers of the hosts, and why others gave none."""
    words = program.module_command(host_data.__name__)
    stdins = {name: msgspec.json.encode(ask) for name, ask in asks.items()}
    limit_s = seconds + host_data.RAS_S + STARTS_S
    answers, silent = dict[str, JobHostStatus](), dict[str, str]()
    for done in remote.run_each(dict.fromkeys(asks, words), limit_s, stdins):
        try:
            answers[done.host] = done.answer(JobHostStatus)
        except ValueError as error:
            silent[done.host] = done.problem or f"unexpected answer: {error}"
    return answers, silent
