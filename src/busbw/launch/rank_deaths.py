"""Which rank died first, according to what mpirun (Open MPI 4 and 5) and srun print."""

import re
import signal
from collections.abc import Sequence

MPIRUN_RANK_DEATH = (
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on signal"
    r" (?P<signal>\d+)"
)
KILLED, ABORTED = "Killed", "Aborted"
SRUN_RANK_DEATH = (
    r"srun: error: (?P<host>\S+): tasks? (?P<rank>[\d,-]+): (?P<why>Killed|Segmentation fault|Bus"
    r" error|Aborted|Illegal instruction)"
)
# Open MPI 5 names its job `prterun-HOST-PID@1`, Open MPI 4 with two numbers.
_EXITED = re.compile(
    r"Process name: \[(?:\[[\d,]+\]|[^\],]+@\d+),(?P<rank>\d+)\] Exit code: (?P<code>\d+)"
)

_REPORT = re.compile(
    r"(?:mpirun|prterun|mpiexec|orterun) (?:noticed|detected|has exited)|MPI_ABORT was invoked"
    r"|srun: error:"
)


def exited_rank(stderr: str) -> tuple[int, int] | None:
    """The rank that exited first, and its code, if mpirun reports one."""
    match = _EXITED.search(one_line(stderr))
    return (int(match["rank"]), int(match["code"])) if match else None


def reports_rank_death(stderr: str) -> bool:
    """Whether a signal killed a rank, which breaks connections, according to the launcher."""
    text = one_line(stderr)
    return any(re.search(pattern, text) for pattern in (MPIRUN_RANK_DEATH, SRUN_RANK_DEATH))


def was_terminated(status: int, stderr: str) -> bool:
    """Whether mpirun ended the job of which it reports no rank, as it does on SIGTERM.

    What its ranks see of each other's end is no cause then.
    """
    return status == 1 and not _REPORT.search(one_line(stderr))


def killed_rank(stderr: str) -> int | None:
    """The rank that SIGKILL ended, according to the launcher."""
    text = one_line(stderr)
    by_mpirun = re.search(MPIRUN_RANK_DEATH, text)
    if by_mpirun:
        killed = int(by_mpirun["signal"]) == signal.SIGKILL
        return int(by_mpirun["rank"]) if killed else None
    by_srun = re.search(SRUN_RANK_DEATH, text)
    return min(_ranks(by_srun["rank"])) if by_srun and by_srun["why"] == KILLED else None


def put_cause_first(stderr: str, gone: Sequence[int]) -> str:
    """The launcher's stderr, with srun's report of the rank that died first moved to the front.

    When a rank dies, Slurm kills the others of the step; some abort on their own. srun may report
    them in any order. The cause is a rank that died of a fault, otherwise the rank whose exit the
    others saw first (`gone`). The other reports are dropped if srun also reported the host of the
    cause first.
    """
    reports = list(re.finditer(SRUN_RANK_DEATH, stderr))
    faults = [report for report in reports if report["why"] not in (KILLED, ABORTED)]
    cause = (faults[0], faults[0]["rank"]) if faults else _first_reported(reports, gone)
    if cause is None:
        return stderr
    first, rank = cause
    certain = bool(faults) or first["host"] == reports[0]["host"]
    remainder = re.sub(SRUN_RANK_DEATH, "", stderr) if certain else stderr
    return f"srun: error: {first['host']}: task {rank}: {first['why']}\n{remainder}"


def _first_reported(
    reports: Sequence[re.Match[str]], gone: Sequence[int]
) -> tuple[re.Match[str], str] | None:
    """srun's report of the first rank of `gone` that it reported, and that rank."""
    for rank in gone:
        for report in reports:
            if rank in _ranks(report["rank"]):
                return report, str(rank)
    return None


def _ranks(text: str) -> set[int]:
    """The ranks of srun's `0,2-3`."""
    ranks: set[int] = set()
    for part in text.split(","):
        if part:
            first, _, last = part.partition("-")
            ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def rank_words(ranks: str) -> str:
    """`rank 2` or `ranks 0,2-3`."""
    return f"ranks {ranks}" if re.search("[,-]", ranks) else f"rank {ranks}"


def or_others(match: re.Match[str], text: str) -> str:
    """The ranks of other hosts that may have died first instead."""
    others = {
        report["host"]: report["rank"]
        for report in re.finditer(SRUN_RANK_DEATH, text)
        if report["host"] != match.groupdict().get("host")
    }
    if not others:
        return ""
    names = " and ".join(f"{rank_words(ranks)} on host {host}" for host, ranks in others.items())
    return f", or {names} died first: Slurm then kills all others, and reports them in any order"


def aborting_host(stderr: str) -> str:
    """The host of the rank that called MPI_Abort, according to the launcher; '' if none did."""
    pattern = r"due to process rank \d+ with PID \d+ on node (\S+) calling"
    match = re.search(pattern, one_line(stderr))
    return match.group(1) if match else ""


def one_line(stderr: str) -> str:
    """The text with white space collapsed."""
    return " ".join(stderr.replace("\0", " ").split())
