"""Draws one conclusion from two NCCL RAS reports, dumps and host data: which rank, collective, host
and port the job waits for. Pure.

In order of certainty: a rank that failed or that NCCL does not reach, ranks that made different
calls, a rank that launched fewer collectives than others, a rank whose GPU has not ended what the
others' have ended, a rank that the dumps show has not called a collective, and a collective in
which all ranks wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from busbw.core.finding import Verdict
from busbw.core.link_samples import LinkFinding
from busbw.core.sizes import counted
from busbw.host.gpu import GpuUse
from busbw.host.process import STATES
from busbw.job import dumps
from busbw.job.ras_report import LEFT_PROBLEM
from busbw.job.stalls import Stall, by_call, call_text, is_send, joined, named, place
from busbw.job.types import CommStatus, JobData, JobHostStatus, JobReport, RankStatus
from busbw.pattern.pending_collective import Outstanding

# a waiting NCCL kernel: always running, at a fraction of the power limit
BUSY_PERCENT, IDLE_POWER = 95, 0.5
PROGRESS_MESSAGE = "the job makes progress"
SAME_CALLS_FIX = (
    "make all ranks of the group call the same collectives in the same order and with the same"
    " sizes; torchfrtrace DUMPS prints where each was called"
)


def conclude(job: JobData, report: JobReport) -> None:
    """Fill in verdict, message, evidence and fix."""
    reasons = (_broken, _different, _behind, dumps.unended, dumps.absent, _all_wait)
    stall = next(filter(None, (reason(job) for reason in reasons)), None)
    if stall:
        report.verdict = Verdict.FAIL
        parts = [stall.message, _since(job)]
        port = "" if stall.fix or job.is_elsewhere() else _port(job, stall.addresses)
        if port:
            parts.append(port)
        report.message = "; ".join(parts)
        report.fix = _fix(job, stall)
    elif job.has_moved():
        report.verdict = Verdict.PASS
        report.message = f"{PROGRESS_MESSAGE}: ranks launched collectives within {job.seconds:g} s"
    else:
        report.verdict = Verdict.UNKNOWN
        report.message = _why_unknown(job)
        report.fix = (
            "run it on a host of the job, or name its hosts with --hosts; dumps of PyTorch's Flight"
            " Recorder: --flight-recorder DIR"
        )
    report.evidence = list(_evidence(job))


def _broken(job: JobData) -> Stall | None:
    """Ranks that NCCL does not reach, whose process is stopped or gone, or that report an error."""
    for comm in job.after.comms:
        ranks = [rank for rank in comm.ranks if rank.problem and rank.problem != LEFT_PROBLEM]
        if not ranks:
            continue
        message = f"{named(job, ranks)} {ranks[0].problem}"
        state = job.state(ranks[0])
        if state in STATES:
            message += f": its process is {STATES[state]}"
        if comm.most:
            others = counted(len(comm.ranks) - len(ranks), "other rank")
            message += f"; {others} launched {_counts(comm)} of communicator {comm.name}"
        return Stall(ranks, [rank.host for rank in ranks], message)
    return None


def _different(job: JobData) -> Stall | None:
    """Ranks that made different calls where all must make the same: no network is at fault."""
    if job.has_moved():  # the dumps are older
        return None
    for call in job.outstanding:
        if call.different:
            message = f"ranks made different calls as {place(call)}: {by_call(call.different)}"
            return Stall([], [], message, SAME_CALLS_FIX)
    for comm in job.after.comms:
        counts = {rank.rank: rank.counts for rank in comm.ranks if rank.counts}
        totals = {sum(own.values()) for own in counts.values()}
        if len(totals) == 1 and len(comm.behind()) > 1:
            texts = {rank: _launched(own) for rank, own in counts.items()}
            message = (
                f"ranks of communicator {comm.name} launched {totals.pop()} collectives each, but"
                f" different ones: {by_call(texts)}"
            )
            return Stall([], [], message, SAME_CALLS_FIX)
    return None


def _behind(job: JobData) -> Stall | None:
    """Ranks that others wait for, and that wait for none in any communicator."""
    if job.has_moved():
        return None
    late: dict[tuple[str, int, int], tuple[RankStatus, CommStatus, str]] = {}
    ahead = set[tuple[str, int, int]]()
    for comm in job.after.comms:
        for function, ranks in comm.behind().items():
            for rank in ranks:
                late.setdefault(rank.process, (rank, comm, function))
            ahead |= {rank.process for rank in comm.ranks if rank not in ranks}
    waits_for_none = [delay for process, delay in late.items() if process not in ahead]
    delays = waits_for_none or list(late.values())
    if not delays:
        return None
    _, comm, function = delays[0]
    ranks = [rank for rank, its_comm, _ in delays if its_comm is comm]
    message = (
        f"{named(job, ranks)} launched {function} {ranks[0].counts[function]} of communicator"
        f" {comm.name}, others {function} {comm.most[function]}"
    )
    state = job.state(ranks[0])
    if state in STATES:
        message += f", its process is {STATES[state]}"
    return Stall(ranks, [rank.host for rank in ranks], message)


def _all_wait(job: JobData) -> Stall | None:
    """A collective that all ranks have called and that does not end, by dumps or low GPU power."""
    moved = job.has_moved()
    if moved:
        return None
    if job.outstanding:
        call = job.outstanding[0]
        waiting = "1 rank waits" if len(call.waiting) == 1 else f"{len(call.waiting)} ranks wait"
        message = f"no rank is late: {waiting} in {call_text(call)}"
        return Stall([], list(job.hosts), message)
    low_power = _waiting_gpus(job)
    if moved is False and low_power:
        comm = max(job.after.comms, key=lambda comm: comm.size)
        share = f"{len(low_power)} of {counted(len(job.gpus()), 'GPU')}"
        message = (
            f"no rank is late: all launched {_counts(comm)} of communicator {comm.name}, and"
            f" {share} run a kernel at low power"
        )
        return Stall([], list(job.hosts), message)
    return None


def _counts(comm: CommStatus) -> str:
    return _launched(comm.most) or "no collective"


def _launched(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _since(job: JobData) -> str:
    times_ns = [call.since_ns for call in job.outstanding if call.since_ns]
    if not times_ns:
        return f"for at least {job.seconds:g} s"
    return f"since {datetime.fromtimestamp(min(times_ns) / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _port(job: JobData, addresses: Iterable[str]) -> str:
    """The port of these hosts, else of any, that tells most: failed, then warned, then down."""
    suspects = [job.host(address) for address in addresses]
    for name in suspects:
        if name in job.silent:
            return f"host {name} does not respond: {job.silent[name]}"
    findings = [
        (name, finding) for name, host in job.hosts.items() for finding in _port_findings(host)
    ]
    if findings:
        name, finding = min(findings, key=lambda pair: (pair[0] not in suspects, _order(pair[1])))
        return f"port {finding.link} of {name}: {finding.message} ({finding.seen})"
    for name, host in job.hosts.items():
        resent = host.watched.tcp.get("RetransSegs", 0) if host.watched else 0
        if resent >= 1:
            return f"TCP on {name} retransmits {resent:,.0f} segments/s"
    return ""


def _port_findings(host: JobHostStatus) -> Sequence[LinkFinding]:
    return host.watched.findings if host.watched else ()


def _order(finding: LinkFinding) -> int:
    """The most telling findings of ports have the lowest number."""
    if finding.pattern == "down":
        return 2
    return 0 if finding.verdict is Verdict.FAIL else 1


def _waiting_gpus(job: JobData) -> list[GpuUse]:
    """The GPUs that seem to run a kernel of NCCL that waits."""
    return [gpu for gpu in job.gpus() if _waits(gpu)]


def _waits(gpu: GpuUse) -> bool:
    busy, power, limit = gpu.percent, gpu.power_w, gpu.limit_w
    if busy is None or power is None or not limit:
        return False
    return busy >= BUSY_PERCENT and power < IDLE_POWER * limit


def _why_unknown(job: JobData) -> str:
    if job.after.comms:
        return (
            "no rank is late, and no rank is seen waiting: no collective was launched within"
            f" {job.seconds:g} s"
        )
    if job.after.nccl:
        return (
            f"NCCL {job.after.nccl} reports no difference between ranks; only NCCL 2.28.7 and"
            " newer reports whether they progress"
        )
    message = f"could not ask the job: {job.no_ras or 'no host answered'}"
    waiting = len(_waiting_gpus(job))
    if waiting:
        message += (
            f"; {counted(waiting, 'GPU')} run at low power and full utilization, like a waiting"
            " kernel"
        )
    return message


def _evidence(job: JobData) -> Iterable[str]:
    for comm in job.after.comms:
        size = f", {comm.size} ranks" if comm.size else ""
        yield f"RAS: communicator {comm.name}{size}: {_counts(comm)}"
        for rank in comm.ranks:
            if rank.problem:
                yield f"RAS: {named(job, [rank])} {rank.problem}"
    for call in _told(job.outstanding):
        late = f"; not called by {joined(call.absent)}" if call.absent else ""
        silent = f"; no dump of {joined(call.silent)}" if call.silent else ""
        ended = f"; ended on {joined(call.completed)}" if call.completed else ""
        called = (
            f"{call_text(call)}: {'waited for' if is_send(call) and call.absent else 'called'} by"
        )
        if call.different:
            called = f"{place(call)}: {by_call(call.different)}; waiting:"
        waiting = joined(call.waiting) or "none"
        yield f"Flight Recorder: {called} {waiting}{ended}{late}{silent}"
    for name, host in job.hosts.items():
        yield from _evidence_of_host(job, name, host)
    for name, reason in job.silent.items():
        yield f"{name} does not respond: {reason}"
    if job.no_ras:
        yield job.no_ras
    yield from filter(None, job.unread)


def _told(calls: Sequence[Outstanding]) -> list[Outstanding]:
    """All calls, but sends and receives beside collectives only if ranks that do not wait have not
    called them: for the others the collectives are the cause.
    """
    waiting = {rank for call in calls for rank in call.waiting}
    alone = all(map(is_send, calls))
    return [
        call
        for call in calls
        if alone or not is_send(call) or call.different or {*call.absent, *call.silent} - waiting
    ]


def _evidence_of_host(job: JobData, name: str, host: JobHostStatus) -> Iterable[str]:
    # Hosts report on all pids of the job, but a pid belongs only to its own host.
    ranks = job.before.processes()
    own_pids = {rank.pid for rank in ranks if job.host(rank.host) == name}
    for pid, state in host.states.items():
        if state in STATES and pid in own_pids:
            yield f"{name}: process {pid} is {STATES[state]}"
    for gpu in host.gpus:
        yield f"{name}: GPU {gpu.index}: {gpu.percent} % busy at {gpu.power_w} W of {gpu.limit_w} W"
    for finding in _port_findings(host):
        yield f"{name}: port {finding.link}: {finding.message} ({finding.seen})"


def _fix(job: JobData, stall: Stall) -> str:
    if stall.fix:
        return stall.fix
    if not stall.culprits and not stall.addresses:
        return "on the host of that rank: py-spy dump --pid PID; dmesg | tail; nvidia-smi"
    if not stall.culprits:
        return (
            "busbw link --hosts H1,H2 measures the network between the hosts; busbw check --hosts"
            " H1,H2 compares them"
        )
    rank = stall.culprits[0]
    host = job.host(rank.host)
    if job.state(rank) in ("T", "t"):
        return f"on {host}: kill -CONT {rank.pid}"
    return f"on {host}: py-spy dump --pid {rank.pid}; dmesg | tail; nvidia-smi"
