"""Turns two NCCL RAS reports, dumps and host data into one line: which rank, collective, host and
port.

Pure.

In order of certainty: a rank that failed or that NCCL does not reach, a rank that launched fewer
collectives than others, a rank that the dumps show has not called a collective, and a collective in
which all ranks wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from busbw.core.finding import Verdict
from busbw.core.link_samples import Said
from busbw.core.sizes import counted
from busbw.host.gpu import GpuUse
from busbw.host.process import STATES
from busbw.job.ras_report import LEFT
from busbw.job.types import CommSeen, HostSeen, JobReport, RankSeen, RasSeen
from busbw.pattern.pending_collective import Outstanding

MOST_NAMED = 4
# a waiting NCCL kernel: always running, at a fraction of the power limit
BUSY_PERCENT, IDLE_POWER = 95, 0.5
MOVES = "the job makes progress"


@dataclass(slots=True)
class Seen:
    """All that was read.

    `before` and `after` are RAS reports `seconds` apart; `silent` are hosts that did not answer.
    """

    seconds: float
    before: RasSeen
    after: RasSeen
    outstanding: Sequence[Outstanding] = ()
    hosts: dict[str, HostSeen] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    no_ras: str = ""  # why RAS has no report
    unread: list[str] = field(default_factory=list)

    def host(self, address: str) -> str:
        """The name under which a host was queried, by NCCL's address; the address if unknown."""
        return next(
            (
                name
                for name, one in self.hosts.items()
                if address == name or address in one.addresses
            ),
            address,
        )

    def state(self, rank: RankSeen) -> str:
        """The state letter of its process; 'R' if its host did not report it."""
        one = self.hosts.get(self.host(rank.host))
        return one.states.get(rank.pid, "R") if one else "R"

    def moved(self) -> bool | None:
        """Whether any rank launched a collective in between; None if unknown."""
        was = {
            (comm.name, rank.rank): rank.counts
            for comm in self.before.comms
            for rank in comm.ranks
            if rank.counts
        }
        now = {
            (comm.name, rank.rank): rank.counts
            for comm in self.after.comms
            for rank in comm.ranks
            if rank.counts
        }
        if was != now:
            return True if self.before.nccl and self.after.nccl else None
        return False if now else None


def conclude(seen: Seen, report: JobReport) -> None:
    """Fill in verdict, message, evidence and fix."""
    found = _broken(seen) or _behind(seen) or _absent(seen) or _all_wait(seen)
    if found:
        report.verdict, (culprits, where, message) = Verdict.FAIL, found
        port = _port(seen, where)
        report.message = "; ".join([message, _since(seen), *([port] if port else [])])
        report.fix = _fix(seen, culprits, where)
    elif seen.moved():
        report.verdict, report.message = (
            Verdict.PASS,
            f"{MOVES}: ranks launched collectives within {seen.seconds:g} s",
        )
    else:
        report.verdict, report.message = Verdict.UNKNOWN, _nothing(seen)
        report.fix = (
            "run it on a host of the job, or name its hosts with --hosts; dumps of PyTorch's Flight"
            " Recorder: --flight-recorder DIR"
        )
    report.evidence = list(_evidence(seen))


Found = tuple[Sequence[RankSeen], Sequence[str], str]


def _broken(seen: Seen) -> Found | None:
    """Ranks that NCCL does not reach, whose process is stopped or gone, or that report an error."""
    for comm in seen.after.comms:
        ranks = [rank for rank in comm.ranks if rank.problem and rank.problem != LEFT]
        if ranks:
            said = ranks[0].problem + (
                f": its process is {STATES[state]}"
                if (state := seen.state(ranks[0])) in STATES
                else ""
            )
            rest = [rank for rank in comm.ranks if rank not in ranks]
            waits = (
                f"; {counted(len(rest), 'other rank')} launched {_counts(comm)} of communicator"
                f" {comm.name}"
                if comm.most
                else ""
            )
            return ranks, [rank.host for rank in ranks], f"{_named(seen, ranks)} {said}{waits}"
    return None


def _behind(seen: Seen) -> Found | None:
    """Ranks for which others wait and that wait for none: a rank behind in one communicator may
    wait in another.
    """
    if seen.moved():
        return None
    late: dict[tuple[str, int, int], tuple[RankSeen, CommSeen, str]] = {}
    ahead = set[tuple[str, int, int]]()
    for comm in seen.after.comms:
        for function, ranks in comm.behind().items():
            late |= {
                rank.process: (rank, comm, function) for rank in ranks if rank.process not in late
            }
            ahead |= {rank.process for rank in comm.ranks if rank not in ranks}
    first = [one for process, one in late.items() if process not in ahead] or list(late.values())
    if not first:
        return None
    comm, function = first[0][1:]
    ranks = [rank for rank, of, _ in first if of is comm]
    count, most = ranks[0].counts[function], comm.most[function]
    state = (
        f", its process is {STATES[letter]}" if (letter := seen.state(ranks[0])) in STATES else ""
    )
    message = (
        f"{_named(seen, ranks)} launched {function} {count} of communicator {comm.name}, others"
        f" {function} {most}{state}"
    )
    return ranks, [rank.host for rank in ranks], message


def _absent(seen: Seen) -> Found | None:
    """Ranks that have not called a collective, according to the dumps; ranks that wait in
    another group are not the cause.
    """
    if seen.moved():  # the dumps are older
        return None
    waiting = {rank for one in seen.outstanding for rank in one.waiting}
    for one in sorted(seen.outstanding, key=lambda one: bool(one.absent.keys() <= waiting)):
        late = sorted(one.absent.keys() - waiting) or sorted(one.absent)
        if late or one.silent:
            names = ", ".join(map(str, (late or one.silent)[:MOST_NAMED]))
            done = f"has not called {one.function}" if late else "gave no dump, the others wait in"
            last = f" (last: {one.absent[late[0]]})" if late else f" {one.function}"
            ranks = [
                rank
                for comm in seen.after.comms
                if comm.size == _size(one)
                for rank in comm.ranks
                if rank.rank in (late or one.silent)
            ]
            what = _named(seen, ranks) if ranks else f"rank {names}"
            number = f" number {one.seq} of group {one.group}"
            message = f"{what} {done}{number}{last}" if late else f"{what} {done}{last}{number}"
            return ranks, [rank.host for rank in ranks], message
    return None


def _size(one: Outstanding) -> int:
    return len({*one.waiting, *one.absent, *one.silent})


def _all_wait(seen: Seen) -> Found | None:
    """A collective that all ranks have called and that does not end, according to the dumps or
    to GPUs at low power.
    """
    hosts = list(seen.hosts)
    if seen.moved():
        return None
    if seen.outstanding:
        one = seen.outstanding[0]
        return (
            [],
            hosts,
            (
                f"no rank is late: {len(one.waiting)} ranks wait in {one.function} number {one.seq}"
                f" of group {one.group}"
            ),
        )
    stalled, all_gpus = _stalled(seen), [gpu for host in seen.hosts.values() for gpu in host.gpus]
    if seen.moved() is False and stalled:
        comm = max(seen.after.comms, key=lambda comm: comm.size)
        of = f"{len(stalled)} of {counted(len(all_gpus), 'GPU')}"
        return (
            [],
            hosts,
            (
                f"no rank is late: all launched {_counts(comm)} of communicator {comm.name}, and"
                f" {of} run a kernel at low power"
            ),
        )
    return None


def _named(seen: Seen, ranks: Sequence[RankSeen]) -> str:
    """`rank 1 (pid 77, h2, GPU 1)`, or several."""
    names = []
    for rank in ranks[:MOST_NAMED]:
        gpu = f"GPU {rank.gpu}" + (f", NVML {rank.nvml}" if rank.nvml not in (rank.gpu, -1) else "")
        names.append(f"rank {rank.rank} (pid {rank.pid}, {seen.host(rank.host)}, {gpu})")
    return ", ".join(names) + (
        f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    )


def _counts(comm: CommSeen) -> str:
    return (
        ", ".join(f"{name} {count}" for name, count in comm.most.items() if count)
        or "no collective"
    )


def _since(seen: Seen) -> str:
    known = [one.since_ns for one in seen.outstanding if one.since_ns]
    if not known:
        return f"for at least {seen.seconds:g} s"
    return f"since {datetime.fromtimestamp(min(known) / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _port(seen: Seen, addresses: Iterable[str]) -> str:
    """The most telling port of these hosts, else of any other: a failure, then a warning, then a
    port that is down.
    """
    first = [seen.host(address) for address in addresses]
    unreachable = next((name for name in first if name in seen.silent), None)
    if unreachable:
        return f"host {unreachable} does not respond: {seen.silent[unreachable]}"
    said = [
        (name not in first, _rank(one), name, one)
        for name, host in seen.hosts.items()
        if host.watched
        for one in host.watched.said
    ]
    if said:
        _, _, name, one = min(said, key=lambda found: found[:2])
        return f"port {one.link} of {name}: {one.message} ({one.seen})"
    for name, host in seen.hosts.items():
        resent = host.watched.tcp.get("RetransSegs", 0) if host.watched else 0
        if resent >= 1:
            return f"TCP on {name} retransmits {resent:,.0f} segments/s"
    return ""


def _rank(one: Said) -> int:
    return 2 if one.pattern == "down" else 0 if one.verdict is Verdict.FAIL else 1


def _stalled(seen: Seen) -> list[GpuUse]:
    return [gpu for host in seen.hosts.values() for gpu in host.gpus if _waits(gpu)]


def _waits(gpu: GpuUse) -> bool:
    busy, power, limit = gpu.percent, gpu.power_w, gpu.limit_w
    return (
        busy is not None
        and busy >= BUSY_PERCENT
        and power is not None
        and bool(limit)
        and power < IDLE_POWER * (limit or 0)
    )


def _nothing(seen: Seen) -> str:
    if seen.after.comms:
        return (
            "no rank is late, and no rank is seen waiting: no collective was launched within"
            f" {seen.seconds:g} s"
        )
    if seen.after.nccl:
        return (
            f"NCCL {seen.after.nccl} reports no difference between ranks; only NCCL 2.28.7 and"
            " newer reports whether they progress"
        )
    stalled = len(_stalled(seen))
    also = (
        f"; {counted(stalled, 'GPU')} run at low power and full utilization, like a waiting kernel"
        if stalled
        else ""
    )
    return f"could not ask the job: {seen.no_ras}{also}"


def _evidence(seen: Seen) -> Iterable[str]:
    for comm in seen.after.comms:
        yield (
            f"RAS: communicator {comm.name}{f', {comm.size} ranks' if comm.size else ''}:"
            f" {_counts(comm)}"
        )
        yield from (
            f"RAS: {_named(seen, [rank])} {rank.problem}" for rank in comm.ranks if rank.problem
        )
    for one in seen.outstanding:
        late = f"; not called by {', '.join(map(str, one.absent))}" if one.absent else ""
        silent = f"; no dump of {', '.join(map(str, one.silent))}" if one.silent else ""
        waits = ", ".join(map(str, one.waiting))
        yield (
            f"Flight Recorder: {one.function} number {one.seq} of group {one.group}: called by"
            f" {waits}{late}{silent}"
        )
    for name, host in seen.hosts.items():
        yield from (
            f"{name}: process {pid} is {STATES[state]}"
            for pid, state in host.states.items()
            if state in STATES and _here(seen, name, pid)
        )
        for gpu in host.gpus:
            yield (
                f"{name}: GPU {gpu.index}: {gpu.percent} % busy at {gpu.power_w} W of"
                f" {gpu.limit_w} W"
            )
        for said in host.watched.said if host.watched else []:
            yield f"{name}: port {said.link}: {said.message} ({said.seen})"
    yield from (f"{name} does not respond: {reason}" for name, reason in seen.silent.items())
    yield from (text for text in (seen.no_ras, *seen.unread) if text)


def _here(seen: Seen, name: str, pid: int) -> bool:
    """Hosts report on all pids of the job, but a pid belongs only to its own host."""
    return any(rank.pid == pid and seen.host(rank.host) == name for rank in seen.before.processes())


def _fix(seen: Seen, culprits: Sequence[RankSeen], where: Sequence[str]) -> str:
    if not culprits and not where:
        return "on the host of that rank: py-spy dump --pid PID; dmesg | tail; nvidia-smi"
    if not culprits:
        return (
            "busbw link --hosts H1,H2 measures the network between the hosts; busbw check --hosts"
            " H1,H2 compares them"
        )
    rank = culprits[0]
    state = seen.state(rank)
    if state in ("T", "t"):
        return f"on {seen.host(rank.host)}: kill -CONT {rank.pid}"
    return f"on {seen.host(rank.host)}: py-spy dump --pid {rank.pid}; dmesg | tail; nvidia-smi"
