"""Faults injected into real runs of busbw on emulated hosts or on this machine, and the required outcome of each.

A fault is drawn from a seed: its kind, the rank or host it hits, and the moment. Every run is judged by the same five questions: did it end
in time, with the right code, naming the fault, with every earlier row still in its file, and without leaving anything behind?
"""

import contextlib
import ctypes
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running import Gone, Run, Setting

LIMIT_S = 1.5
LAUNCH_LIMIT_S = 6.0
TOO_SLOW = ("no rank is late: all 4 wait at the same step", "no rank reported within")
LATEST_ROW = 12
PULSES = 6


@dataclass(frozen=True)
class Fault:
    """One fault: `rank` is hit, `host` is its host, after `row` rows (0: as soon as its process is there) and `delay_s` more."""

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
        when = f"row {self.row} + {self.delay_s * 1e3:.0f} ms" if self.row else "start"
        return f"{self.kind.name} {self.variant} rank {self.rank} at {when} ({where})"


@dataclass(frozen=True)
class Kind:
    """One kind of fault: how it is injected, the exit code, and the texts required in the error (alternatives each)."""

    name: str
    do: Callable[[Fault, Run], None]
    code: int
    said: Callable[[Fault, Run], list[tuple[str, ...]]]
    local: bool = True  # also on this machine alone
    away: bool = True  # between hosts
    at_start: bool = True
    ends: bool = False  # the run is to end by itself, with all its rows
    variants: tuple[str, ...] = ("",)
    setting: Callable[[Fault, Run], None] = lambda _fault, _run: None
    clean_s: float = 3.0  # until no process of the run is left


def draw(seed: int, number: int, *, hosts: bool = True) -> Fault:
    """Fault `number` of a seed; kinds come in turn, all else is drawn."""
    dice = random.Random(f"{seed}/{number}")
    kinds = [kind for kind in KINDS if kind.away or not hosts] if hosts else [kind for kind in KINDS if kind.local]
    kind = kinds[number % len(kinds)]
    local = not hosts or (kind.local and dice.random() < 0.3)
    row = 0 if kind.at_start and dice.random() < 0.25 else dice.randint(1, LATEST_ROW)
    return Fault(kind, local, dice.randrange(4), row, dice.uniform(0, 0.05) if row else dice.uniform(0, 2), dice.choice(kind.variants))


def signalled(number: signal.Signals) -> Callable[[Fault, Run], None]:
    return lambda fault, run: os.kill(run.pid_of(fault.rank), number)


def stop_host(fault: Fault, run: Run) -> None:
    for rank in (2 * fault.host, 2 * fault.host + 1):
        os.kill(run.pid_of(rank), signal.SIGSTOP)


def slow(fault: Fault, run: Run) -> None:
    pid = run.pid_of(fault.rank)
    with contextlib.suppress(ProcessLookupError):  # the run may end meanwhile
        for _ in range(PULSES):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.15)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)


def pull(fault: Fault, run: Run) -> None:
    assert run.lab is not None
    host = run.lab.hosts[fault.host]
    run.ip("-n", host.namespace, "link", "set", host.interface, "down")


def step_clock(fault: Fault, run: Run) -> None:
    """Set the time of day an hour forward or back for half a second; the monotonic clock gives the time to restore."""
    step_s = 3600 if fault.variant == "on" else -3600
    real, start = time.clock_gettime(time.CLOCK_REALTIME), time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, real + step_s)
    try:
        time.sleep(0.5)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, real + time.monotonic() - start)


def signal_busbw(number: signal.Signals) -> Callable[[Fault, Run], None]:
    return lambda _fault, run: run.signal_busbw(number)


def kill_named(*names: str) -> Callable[[Fault, Run], None]:
    return lambda _fault, run: [os.kill(pid, signal.SIGKILL) for pid in run.named(*names)[:1]] and None


def nothing(_fault: Fault, _run: Run) -> None:
    """What is wrong was set up before."""


def wrong_interface(fault: Fault, run: Run) -> None:
    assert run.lab is not None
    first = run.lab.hosts[0]
    run.ip("-n", first.namespace, "link", "add", "own0", "type", "veth", "peer", "own1")
    run.ip("-n", first.namespace, "addr", "add", "10.99.0.1/24", "dev", "own0")
    run.ip("-n", first.namespace, "link", "set", "own0", "up")
    run.setting.ifname = {"absent": "nosuch0", "unshared": "10.99.0.0/24", "first only": first.interface}[fault.variant]


def small_disk(_fault: Fault, run: Run) -> None:
    run.mount_small_disk(kilobytes=12)


def black_hole(_fault: Fault, run: Run) -> None:
    """The agent of the second host never answers, as behind a firewall that drops everything."""
    assert run.lab is not None
    text = run.lab.agent.read_text()
    run.lab.agent.write_text(text.replace("#!/bin/sh\n", f'#!/bin/sh\ncase "$1" in {run.lab.hosts[1].address}) exec sleep 600;; esac\n', 1))


def the_rank(*what: str) -> Callable[[Fault, Run], list[tuple[str, ...]]]:
    """The rank, its host, what became of it, and where."""

    def said(fault: Fault, run: Run) -> list[tuple[str, ...]]:
        rank = (f"rank {fault.rank} ",)
        host = (run.host_name(fault.rank), run.address(fault.rank))
        if not fault.row:
            return [rank, *([] if fault.local else [host]), (*what, "did not start")]
        return [rank, host, what, ("warm-up of", "verify of", "timing of", "after the row of", "before the first row", "prepare", "init")]

    return said


def both_ranks(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    first = 2 * fault.host
    if fault.row:
        return [(f"ranks {first}, {first + 1} on {run.host_name(first)} are stopped",)]
    both = f"ranks {first}, {first + 1} on"  # at the start one may have said that it is there, and the other not
    host = (run.host_name(first), run.address(first))
    return [(both, f"rank {first} on"), (both, f"rank {first + 1} on"), host, ("stopped", "did not start")]


def the_link(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    assert run.lab is not None
    # Both ends of a pulled cable lose their link; the second host is the one that is cut off from the launcher.
    interfaces = tuple(f"{host.interface} on {host.name} went down" for host in run.lab.hosts)
    second = run.lab.hosts[1]
    return [interfaces if fault.row else (*interfaces, second.address, second.name)]


def the_interface(fault: Fault, run: Run) -> list[tuple[str, ...]]:
    return {
        "absent": [("--ifname nosuch0: no such interface",)],
        "unshared": [("10.77.0.2",)],
        "first only": [("10.77.0.2: no interface of that name",)],
    }[fault.variant]


def words(*choices: str) -> Callable[[Fault, Run], list[tuple[str, ...]]]:
    return lambda _fault, _run: [choices] if choices else []


def second_host(_fault: Fault, run: Run) -> list[tuple[str, ...]]:
    assert run.lab is not None
    return [(run.lab.hosts[1].name, run.lab.hosts[1].address)]


KINDS: tuple[Kind, ...] = (
    Kind("killed", signalled(signal.SIGKILL), 3, the_rank("SIGKILL", "exited without an error message")),
    Kind("stopped", signalled(signal.SIGSTOP), 3, the_rank("stopped")),
    Kind("slow", slow, 0, words(), at_start=False, ends=True),
    Kind("link pulled", pull, 3, the_link, local=False, clean_s=12.0),
    Kind("wrong interface", nothing, 3, the_interface, local=False, at_start=True, variants=("absent", "unshared", "first only"),
         setting=wrong_interface),
    Kind("full disk", nothing, 3, words("No space left on device"), at_start=False, ends=True, setting=small_disk),
    Kind("clock step", step_clock, 0, words(), at_start=False, ends=True, variants=("on", "back")),
    Kind("host stopped", stop_host, 3, both_ranks, local=False),
    Kind("interrupted", signal_busbw(signal.SIGINT), 130, words("interrupted"), at_start=False),
    Kind("terminated", signal_busbw(signal.SIGTERM), 143, words("terminated (SIGTERM)"), at_start=False),
    Kind("mpirun killed", kill_named("prterun", "mpirun", "orterun"), 3, words("died of signal 9 (SIGKILL)"), at_start=False),
    Kind("daemon killed", kill_named("prted", "orted"), 3, second_host, local=False, at_start=False),
    Kind("no answer", nothing, 3, second_host, local=False, setting=black_hole),
)  # fmt: skip


@dataclass
class Outcome:
    """What a run did: how long it took from the fault to its end, and a description of each deviation; empty if all was right."""

    fault: Fault
    seconds: float
    clean_s: float = 0.0
    rows: int = 0
    hang: bool = False
    wrong_name: str = ""
    wrong_code: str = ""
    left: list[str] = field(default_factory=list)
    lost: int = 0
    error: str = ""

    @property
    def fine(self) -> bool:
        return not (self.hang or self.wrong_name or self.wrong_code or self.left or self.lost)

    @property
    def too_slow(self) -> bool:
        """Whether the run missed time limits on a busy machine, before or independently of the fault."""
        return not self.hang and any(words in self.error for words in TOO_SLOW)


def inject(fault: Fault, folder: Path, netlab: Any, patience: float = 1.0) -> Outcome:
    """One run of busbw with this fault, judged; `patience` is a factor of all limits."""
    kind = fault.kind
    setting = Setting(limit_s=LIMIT_S * patience, launch_limit_s=LAUNCH_LIMIT_S * patience, cycles=4 if kind.ends else 0)
    with Run(folder, None if fault.local else netlab, setting) as run:
        kind.setting(fault, run)
        run.start()
        hits = kind.do is not nothing
        if hits:
            if not run.comes_to(fault.row, fault.rank):
                return Outcome(fault, 0.0, wrong_name=f"no row {fault.row} of rank {fault.rank}", error=run.stderr)
            time.sleep(fault.delay_s)
        seen, start = run.rows_seen, time.monotonic()
        if hits:
            try:
                kind.do(fault, run)
            except Gone as error:  # the run ended by itself, and says why
                run.ended_within(_bound_s(fault) * patience)
                return Outcome(fault, 0.0, wrong_name=str(error), error=run.error)
        hang = not run.ended_within(_bound_s(fault) * patience)
        outcome = Outcome(fault, time.monotonic() - start, rows=seen, hang=hang)
        if hang:
            outcome.left = [run.describe()]
            return outcome
        _judge(fault, run, outcome, seen)
        outcome.left, outcome.clean_s = run.left_after(kind.clean_s)
    return outcome


def _bound_s(fault: Fault) -> float:
    """From the fault to the end: the limit that notices it, gathering, asking a host, ending the launcher; doubled for a busy machine."""
    start_s = LAUNCH_LIMIT_S * 2 + 6 if not fault.row or fault.kind.do is nothing else 0
    return 2 * (max(2 * LIMIT_S + 3, start_s) + 1 + 3 + 5) + (30 if fault.kind.ends else 0)


def _judge(fault: Fault, run: Run, outcome: Outcome, seen: int) -> None:
    code = 2 if fault.variant == "absent" else fault.kind.code
    outcome.error = run.error
    if run.code != code:
        outcome.wrong_code = f"exit {run.code}, not {code}: {run.stderr[-800:]}"
    missing = [choices for choices in fault.kind.said(fault, run) if not any(words in run.error for words in choices)]
    if missing:
        outcome.wrong_name = f"none of {missing} in: {run.error or run.stderr[-800:]}"
    if fault.kind.name == "full disk":
        outcome.lost = run.expected_rows - run.rows_seen  # they stay on the screen
    elif fault.kind.ends:
        outcome.lost = run.expected_rows - run.rows_kept
    else:
        outcome.lost = max(seen - run.rows_kept, 0)


def may_set_clock() -> bool:
    """Whether this process may set the time of day: CAP_SYS_TIME, tried by a step of nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.adjtimex(ctypes.create_string_buffer(b"\x01" + bytes(255), 256)) >= 0 and _capable(25)


def _capable(bit: int) -> bool:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> bit & 1)


__all__ = ["KINDS", "Fault", "Kind", "Outcome", "draw", "inject", "may_set_clock"]
