"""Faults injected into real runs of busbw on emulated hosts or on this machine, and the required
outcome of each.

A fault is drawn from a seed: its kind, the rank or host it hits, and the moment. Every run is
judged by the same five questions: did it end in time, with the right code, naming the fault, with
every earlier row still in its file, and without leaving anything behind?
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import strikes
from running import Gone, Run, Setting
from strikes import Do

LIMIT_S = 1.5
LAUNCH_LIMIT_S = 6.0
START_LIMIT_S = 30.0
LATEST_ROW = 12
ENDING = -1  # instead of a row: all rows are there, and the job ends


@dataclass(frozen=True)
class Fault:
    """One fault: `rank` is hit, `host` is its host, after `row` rows (0: as soon as its process is
    there) and `delay_s` more.

    `row` ENDING: after the last row.
    """

    kind: "Kind"
    local: bool
    rank: int
    row: int
    delay_s: float
    variant: str

    @property
    def host(self) -> int:
        return self.rank // 2

    def __str__(self) -> str:
        where = "here" if self.local else "2 hosts"
        place = {0: "start", ENDING: "end"}.get(self.row, f"row {self.row}")
        when = f"{place} + {self.delay_s * 1e3:.0f} ms"
        return f"{self.kind.name} {self.variant} rank {self.rank} at {when} ({where})"


@dataclass(frozen=True)
class Kind:
    """One kind of fault: how it is injected, the exit code, and the texts required in the error
    (alternatives each).
    """

    name: str
    do: Do
    code: int
    expected: Callable[[Fault, Run], list[tuple[str, ...]]]
    local: bool = True  # also on this machine alone
    away: bool = True  # between hosts
    at_start: bool = True
    at_row: bool = True
    at_end: bool = False
    ends: bool = False  # the run is to end by itself, with all its rows
    unsaved: bool = False  # rows since the last write of a long file are lost, but not all
    variants: tuple[str, ...] = ("",)
    setting: Do = lambda _fault, _run: None
    clean_s: float = 12.0  # until no process of the run is left
    extra_s: float = 0.0  # until the fault has an effect
    missing: Callable[[], str] = str  # why this machine cannot do it


def draw(seed: int, number: int, *, hosts: bool = True) -> Fault:
    """Fault `number` of a seed; kinds come in turn, all else is drawn."""
    dice = random.Random(f"{seed}/{number}")
    kinds = KINDS if hosts else [kind for kind in KINDS if kind.local]
    kind = kinds[number % len(kinds)]
    local = not hosts or not kind.away or (kind.local and dice.random() < 0.3)
    moment, rank, variant = dice.random(), dice.randrange(4), dice.choice(kind.variants)
    if kind.at_start and (moment < 0.25 or not kind.at_row):
        return Fault(kind, local, rank, 0, dice.uniform(0, 2) * kind.at_row, variant)
    if kind.at_end and moment > 0.8:
        return Fault(kind, local, rank, ENDING, dice.uniform(0, 0.4), variant)
    return Fault(kind, local, rank, dice.randint(1, LATEST_ROW), dice.uniform(0, 0.05), variant)


def the_rank(*outcomes: str) -> Callable[[Fault, Run], list[tuple[str, ...]]]:
    """The rank, its host, what became of it, and where."""

    def expected(fault: Fault, run: Run) -> list[tuple[str, ...]]:
        rank_choices = (f"rank {fault.rank} ",)
        host_choices = (run.host_name(fault.rank), run.address(fault.rank))
        if fault.row <= 0:
            return [rank_choices, host_choices, outcomes]
        return [
            rank_choices,
            host_choices,
            outcomes,
            (
                "warm-up of",
                "verify of",
                "timing of",
                "after the row of",
                "before the first row",
                "prepare",
                "init",
            ),
        ]

    return expected


def the_dead_rank(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    """Without a phase: it is found by its process, not by a limit."""
    return the_rank("SIGKILL", "exited without an error message", "is dead")(fault, run)[:3]


def both_ranks(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    first = 2 * fault.host
    if fault.row > 0:
        return [(f"ranks {first}, {first + 1} on {run.host_name(first)} are stopped",)]
    # at the start one may have said that it is there, and the other not
    pair = f"ranks {first}, {first + 1} on"
    host = (run.host_name(first), run.address(first))
    return [(pair, f"rank {first} on"), (pair, f"rank {first + 1} on"), host, ("stopped",)]


def the_link(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    assert run.lab is not None
    # Both ends of a pulled cable lose their link; the second host is the one that is cut off from
    # the launcher.
    interfaces = tuple(f"{host.interface} on {host.name} went down" for host in run.lab.hosts)
    second = run.lab.hosts[1]
    return [interfaces if fault.row else (*interfaces, second.address, second.name)]


def the_interface(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    return {
        "absent": [("--ifname nosuch0: no such interface",)],
        "unshared": [("10.77.0.2",)],
        "first only": [("10.77.0.2: no interface of that name",)],
    }[fault.variant]


def the_launcher(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    return [(f"mpirun on {run.host_name(0)} (pid ",), ("is stopped",)]


def the_daemon(_fault: Fault, run: Run) -> list[tuple[str, ...]]:
    return [(f"prted on {run.host_name(2)} (pid ",), ("is stopped",)]


def the_lossy_link(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    """Both hosts, or their addresses: TCP does not know in which direction packets are lost.

    A launching host that hears nothing does not know either that the others send their packets
    again.
    """
    network_choices = ("packets are lost", "the network between")
    if fault.variant == "large":
        network_choices = ("large packets from",)
    return [(run.host_name(rank), run.address(rank)) for rank in (0, 2)] + [network_choices] * (
        fault.row > 0
    )


def the_memory(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    choices = [(run.host_name(0), run.host_name(2)), ("out of memory",)]
    return (
        [*choices, ("rank ",)]
        if fault.variant == "limit"
        else [*the_rank("out of memory")(fault, run)]
    )


def the_room(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    return [
        ("/dev/shm" if fault.variant == "/dev/shm" else str(run.temporary),),
        ("is full", "has no room"),
    ]


def words(*choices: str) -> Callable[[Fault, Run], list[tuple[str, ...]]]:
    return lambda _fault, _run: [choices] if choices else []


def second_host(_fault: Fault, run: Run) -> list[tuple[str, ...]]:
    assert run.lab is not None
    return [(run.lab.hosts[1].name, run.lab.hosts[1].address)]


def a_host(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    """Both ends of a pulled cable have no link."""
    return [(run.host_name(0), run.address(0), *second_host(fault, run)[0])]


LAUNCHER, DAEMON = ("prterun", "mpirun", "orterun"), strikes.DAEMON
KINDS: tuple[Kind, ...] = (
    Kind(
        "killed",
        strikes.signalled(signal.SIGKILL),
        3,
        the_rank("SIGKILL", "exited without an error message"),
        at_end=True,
    ),
    Kind("stopped", strikes.signalled(signal.SIGSTOP), 3, the_rank("stopped"), at_end=True),
    Kind(
        "frozen",
        strikes.freeze,
        3,
        the_rank("frozen"),
        at_start=False,
        extra_s=10.0,
        missing=strikes.no_freezer,
    ),
    Kind("slow", strikes.slow, 0, words(), at_start=False, ends=True),
    Kind("link pulled", strikes.pull, 3, the_link, local=False, clean_s=30.0),
    Kind("link down", strikes.nothing, 3, a_host, local=False, setting=strikes.pull),
    Kind(
        "packets lost",
        strikes.drop_packets,
        3,
        the_lossy_link,
        local=False,
        at_start=False,
        variants=("half", "in", "out", "large"),
        setting=strikes.much_data,
        clean_s=30.0,
        extra_s=30.0,
        missing=strikes.no_nftables,
    ),
    Kind(
        "wrong interface",
        strikes.nothing,
        3,
        the_interface,
        local=False,
        variants=("absent", "unshared", "first only"),
        setting=strikes.wrong_interface,
    ),
    Kind(
        "full disk",
        strikes.nothing,
        3,
        words("No space left on device"),
        at_start=False,
        ends=True,
        setting=strikes.small_disk,
    ),
    Kind(
        "directory removed",
        strikes.remove_folder,
        3,
        words("the rows are in"),
        at_start=False,
        ends=True,
        setting=strikes.own_folder,
    ),
    Kind(
        "no room",
        strikes.nothing,
        3,
        the_room,
        away=False,
        variants=("/dev/shm", "temporary files"),
        setting=strikes.no_room,
    ),
    Kind(
        "out of memory",
        strikes.little_memory,
        3,
        the_memory,
        at_row=False,
        variants=("killed", "limit"),
        setting=strikes.needs_memory,
        extra_s=10.0,
        missing=strikes.no_memory_groups,
    ),
    Kind(
        "clock step",
        strikes.step_clock,
        0,
        words(),
        at_start=False,
        ends=True,
        variants=("on", "back"),
        missing=strikes.no_clock,
    ),
    Kind("host stopped", strikes.stop_host, 3, both_ranks, local=False),
    # Not at the end: Python that is exiting dies of SIGINT itself, when all is printed and saved.
    Kind("interrupted", strikes.signal_busbw(signal.SIGINT), 130, words("interrupted")),
    Kind(
        "terminated",
        strikes.signal_busbw(signal.SIGTERM),
        143,
        words("terminated (SIGTERM)"),
        at_end=True,
    ),
    Kind(
        "hung up",
        strikes.signal_busbw(signal.SIGHUP),
        129,
        words("terminated (SIGHUP)"),
        at_end=True,
    ),
    Kind(
        "nohup", strikes.signal_busbw(signal.SIGHUP), 0, words(), ends=True, setting=strikes.nohup
    ),
    Kind("SIGPIPE", strikes.signal_busbw(signal.SIGPIPE), 0, words(), ends=True),
    Kind(
        "busbw killed", strikes.signal_busbw(signal.SIGKILL), -9, words(), at_end=True, unsaved=True
    ),
    Kind(
        "stdout not read",
        strikes.stop_reading,
        0,
        words(),
        at_start=False,
        ends=True,
        variants=("closed", "full"),
        setting=strikes.small_pipe,
    ),
    Kind(
        "mpirun killed",
        strikes.kill_named(*LAUNCHER),
        3,
        words("died of signal 9 (SIGKILL)"),
        at_end=True,
    ),
    Kind("mpirun stopped", strikes.stop_named(*LAUNCHER), 3, the_launcher, at_end=True),
    Kind("daemon killed", strikes.kill_named(*DAEMON), 3, second_host, local=False, at_end=True),
    Kind(
        "daemon stopped",
        strikes.stop_named(*DAEMON),
        3,
        the_daemon,
        local=False,
        ends=True,
        at_end=True,
    ),
    Kind(
        "both gone",
        strikes.stop_daemon_and_kill_busbw,
        -9,
        words(),
        local=False,
        at_start=False,
        unsaved=True,
        setting=strikes.with_torch,
        clean_s=30.0,
        missing=strikes.no_torch,
    ),
    Kind(
        "daemon stopped, rank killed",
        strikes.stop_daemon_and_kill_rank,
        3,
        the_dead_rank,
        local=False,
        at_start=False,
        extra_s=10.0,
    ),
    Kind("no answer", strikes.nothing, 3, second_host, local=False, setting=strikes.black_hole),
)


@dataclass
class Outcome:
    """What a run did: how long it took from the fault to its end, and a description of each
    deviation; empty if all was right.
    """

    fault: Fault
    seconds: float
    clean_s: float = 0.0
    rows: int = 0
    hang: bool = False
    late: bool = False  # the run did not come to the moment of the fault
    wrong_name: str = ""
    wrong_code: str = ""
    left: list[str] = field(default_factory=list)
    lost: int = 0
    error: str = ""

    @property
    def fine(self) -> bool:
        return not (self.hang or self.wrong_name or self.wrong_code or self.left or self.lost)

    @property
    def may_be_slow(self) -> bool:
        """Whether a busy machine may be the cause: a host that does not answer in time cannot say
        what became of its ranks.
        """
        return self.late or not (self.hang or self.left or self.lost)


def inject(fault: Fault, folder: Path, netlab: Any, patience: float = 1.0) -> Outcome:
    """One run of busbw with this fault, judged; `patience` is a factor of all limits."""
    kind = fault.kind
    cycles = 2 if fault.row == ENDING else 4 if kind.ends else 0
    setting = Setting(
        limit_s=LIMIT_S * patience,
        launch_limit_s=LAUNCH_LIMIT_S * patience,
        cycles=cycles,
        start_limit_s=START_LIMIT_S * patience,
    )
    with Run(folder, None if fault.local else netlab, setting) as run:
        kind.setting(fault, run)
        run.start()
        hits = kind.do is not strikes.nothing
        if hits:
            row = run.expected_rows if fault.row == ENDING else fault.row
            if not run.comes_to(row, fault.rank) and fault.row != ENDING:
                return Outcome(
                    fault,
                    0.0,
                    late=run.is_running,
                    wrong_name=f"no row {fault.row} of rank {fault.rank}",
                    error=run.stderr,
                )
            time.sleep(fault.delay_s)
        rows_seen, start = run.rows_seen, time.monotonic()
        run.record_files()
        if hits:
            try:
                kind.do(fault, run)
            except Gone as error:  # the run ended by itself, and says why
                run.ended_within(_bound_s(fault) * patience)
                if (fault.row == ENDING or kind.ends) and run.code == 0:
                    return Outcome(fault, 0.0, rows=rows_seen, left=run.left_after(kind.clean_s)[0])
                return Outcome(fault, 0.0, wrong_name=str(error), error=run.error)
        hang = not run.ended_within(_bound_s(fault) * patience)
        outcome = Outcome(fault, time.monotonic() - start, rows=rows_seen, hang=hang)
        if hang:
            outcome.left = [run.describe()]
            return outcome
        _judge(fault, run, outcome, rows_seen)
        outcome.left, outcome.clean_s = run.left_after(kind.clean_s)
    return outcome


def _bound_s(fault: Fault) -> float:
    """From the fault to the end: the limit that notices it, gathering, asking a host, ending the
    launcher; doubled for a busy machine.
    """
    start_s = LAUNCH_LIMIT_S * 2 + 6 if not fault.row or fault.kind.do is strikes.nothing else 0
    return (
        2 * (max(2 * LIMIT_S + 3, start_s) + 1 + 3 + 5)
        + (30 if fault.kind.ends else 0)
        + fault.kind.extra_s
    )


def _judge(fault: Fault, run: Run, outcome: Outcome, rows_seen: int) -> None:
    kind, outcome.error = fault.kind, run.error
    # It had ended before the fault had an effect, or only Python had not.
    in_time = fault.row == ENDING and run.code in (0, -signal.SIGTERM, -signal.SIGHUP)
    code = run.code if in_time else 2 if fault.variant == "absent" else kind.code
    if run.code != code:
        outcome.wrong_code = f"exit {run.code}, not {code}: {run.stderr[-800:]}"
    expected = [] if in_time else kind.expected(fault, run)
    missing = [choices for choices in expected if not any(words in run.error for words in choices)]
    if missing:
        outcome.wrong_name = f"none of {missing} in: {run.error or run.stderr[-800:]}"
    complete = kind.ends and (fault.row or code == 0)
    lost = max((run.expected_rows if complete else rows_seen) - run.rows_kept, 0)
    outcome.lost = 0 if kind.unsaved and run.rows_kept else lost


__all__ = ["KINDS", "Fault", "Kind", "Outcome", "draw", "inject"]
