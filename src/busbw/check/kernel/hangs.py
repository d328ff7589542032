"""Processes that hang in the kernel, and reads that never return."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.base import check, failed, not_offered, passed, skipped, unknown, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.d_state import stuck_processes
from busbw.host.limited import given_up

MAX_NAMED_PROCESSES = 5
# Functions in which a process waits for a disk that is slow or busy. A disk that never answers is
# in the kernel log after two minutes.
DISK_WAITS = (
    "io_schedule", "folio_wait", "wait_on_page", "wait_on_buffer", "jbd2_", "do_get_write_access",
    "blk_mq_", "rq_qos_wait", "wbt_wait", "submit_bio_wait", "blkdev_issue", "balance_dirty_pages",
    "xfs_log", "xlog_", "xfs_buf", "btrfs_",
)  # fmt: skip
KTHREADD = "/proc/2/comm"  # the parent of kernel threads, only in the host's namespace


@dataclass(frozen=True, slots=True)
class BlockedProcess:
    """A process in state D, and the kernel function in which it waits.

    '' in old snapshots, and for who may not see it.
    """

    pid: int
    name: str
    function: str = ""

    @property
    def evidence(self) -> Evidence:
        """The state of the process in /proc."""
        state = f"state D in {self.function}" if self.function else "state D"
        return Evidence(f"/proc/{self.pid}/stat", state, "R or S")


STUCK_PROCESSES = CheckRow(
    id="BW124",
    name="stuck-processes",
    layer=Layer.KERNEL,
    title="processes stuck in the kernel",
    right="no process stays in one wait in state D for 3 s, except for a disk",
    why=(
        "Such a process waits for a driver or file system that does not respond. It cannot be"
        " killed, and may hold a GPU."
    ),
    fix=(
        "to see the driver or mount that it waits for: cat /proc/{pid}/stack; dmesg -T | tail; "
        "if it does not end, drain the host and reboot it"
    ),
    stays="a reboot ends it; the cause may come back",
    reads=("/proc/*/{stat,status,wchan}, for 3 s", KTHREADD),
    sources=("proc(5): state D",),
)


@check(STUCK_PROCESSES)
def check_stuck_processes(machine: Machine) -> Iterator[Finding]:
    """One finding for all processes that were in state D in every sample."""
    reading = machine.call("stuck processes", stuck_processes)
    if reading.text is None:
        yield unread("", reading, "the states of processes")
        return
    processes = json.loads(reading.text)
    if not processes:
        yield _judge_none_stuck(machine)
        return
    waits = [BlockedProcess(*process) for process in processes]
    stuck = [wait for wait in waits if not wait.function.startswith(DISK_WAITS)]
    if not stuck:
        message = (
            f"no process hangs in the kernel; {counted(len(waits), 'process', 'es')} waited for a"
            " disk"
        )
        yield passed("", message, *(wait.evidence for wait in waits[:MAX_NAMED_PROCESSES]))
        return
    names = [f"{wait.name} ({wait.pid})" for wait in stuck]
    more = (
        f" and {len(names) - MAX_NAMED_PROCESSES} more" if len(names) > MAX_NAMED_PROCESSES else ""
    )
    evidence = (wait.evidence for wait in stuck[:MAX_NAMED_PROCESSES])
    yield warned(
        "",
        f"in one wait of 3 s or longer: {', '.join(names[:MAX_NAMED_PROCESSES])}{more}",
        *evidence,
        fix=filled(STUCK_PROCESSES.fix, pid=str(stuck[0].pid)),
    )


def _judge_none_stuck(machine: Machine) -> Finding:
    if machine.container and machine.text(KTHREADD) != "kthreadd":
        fix = (
            "run busbw check on the host, or in a container with the host's processes (--pid=host,"
            " hostPID)"
        )
        return not_offered(
            "",
            "this container shows only its own processes",
            Evidence(KTHREADD, "not kthreadd", "kthreadd"),
            fix=fix,
        )
    return passed("", "no process hangs in the kernel", Evidence("/proc/*/stat", "no state D"))


READS_ANSWER = CheckRow(
    id="BW280",
    name="reads-answer",
    layer=Layer.KERNEL,
    title="files and libraries that do not answer",
    right=(
        "every file, directory and library call answers in time, and a snapshot has the environment"
    ),
    why=(
        "A read that never returns shows a driver that hangs, a file system without its server, "
        "or a device that stopped. Jobs that read the same hang as well, and cannot be killed."
    ),
    fix=(
        "drain the node; dmesg -T | tail -50 names the driver or mount; if it does not recover,"
        " reboot"
    ),
    stays="a reboot ends the hang; the cause may come back",
    reads=("the readings of all other checks, 5 s for a file and 30 s for a call",),
    sources=("proc(5): state D",),
)


@check(READS_ANSWER)
def check_reads_answer(machine: Machine) -> Iterator[Finding]:
    """One failure for each read that did not return; unknown if the time for all reads was up."""
    unanswered = given_up(machine)
    if unanswered is None:
        yield skipped("this machine was read without a limit of time")
        return
    for reason in unanswered.silent:
        subject, _, problem = reason.partition(": ")
        yield failed(
            subject,
            f"{subject} {problem}",
            Evidence(subject, problem, "an answer"),
            fix=READS_ANSWER.fix,
        )
    if unanswered.over:
        yield unknown("", unanswered.over, fix="busbw check --limit 300")
    elif not unanswered.silent:
        yield passed("", "everything that was read answered")
