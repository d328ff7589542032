"""How each fault is injected into a run: signals, the network, memory, disks, and what reads the
output.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from running import Gone, Run

DAEMON = ("prted", "orted")
TORCH_START_S = 60.0
PULSES = 6
BLOCKED_S = 4.0  # longer than twice the limit
Do = Callable[[Any, Run], None]  # the first is the Fault


def signalled(number: signal.Signals) -> Do:
    return lambda fault, run: os.kill(run.pid_of(fault.rank), number)


def stop_host(fault: Any, run: Run) -> None:
    for rank in (2 * fault.host, 2 * fault.host + 1):
        os.kill(run.pid_of(rank), signal.SIGSTOP)


def slow(fault: Any, run: Run) -> None:
    pid = run.pid_of(fault.rank)
    with contextlib.suppress(ProcessLookupError):  # the run may end meanwhile
        for _ in range(PULSES):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.15)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)


def pull(fault: Any, run: Run) -> None:
    assert run.lab is not None
    host = run.lab.hosts[fault.host]
    run.ip("-n", host.namespace, "link", "set", host.interface, "down")


def step_clock(fault: Any, run: Run) -> None:
    """Set the time of day an hour forward or back for half a second; the monotonic clock gives
    the time to restore.
    """
    step_s = 3600 if fault.variant == "on" else -3600
    real, start = time.clock_gettime(time.CLOCK_REALTIME), time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, real + step_s)
    try:
        time.sleep(0.5)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, real + time.monotonic() - start)


def signal_busbw(number: signal.Signals) -> Do:
    return lambda _fault, run: run.signal_busbw(number)


def kill_named(*names: str) -> Do:
    return lambda _fault, run: _signal_first(run.named(*names), signal.SIGKILL, names)


def with_torch(_fault: Any, run: Run) -> None:
    run.setting.engine, run.setting.launch_limit_s = "torch", TORCH_START_S


def no_torch() -> str:
    return "" if find_spec("torch") else "PyTorch is not installed"


def stop_daemon_and_kill_busbw(_fault: Any, run: Run) -> None:
    """A daemon that cannot end its ranks, and nobody who could tell it to."""
    stop_named(*DAEMON)(_fault, run)
    run.signal_busbw(signal.SIGKILL)


FREEZER = Path("/sys/fs/cgroup/freezer")


def no_freezer() -> str:
    return "" if os.access(FREEZER, os.W_OK) else "no freezer that a test may use (cgroup 1)"


def stop_daemon_and_kill_rank(fault: Any, run: Run) -> None:
    """The launcher does not learn of the death, and cannot end the ranks of that host."""
    pid = run.pid_of(fault.rank)
    stop_named(*DAEMON)(fault, run)
    os.kill(pid, signal.SIGKILL)


def freeze(fault: Any, run: Run) -> None:
    """As `docker pause` does. What is frozen cannot be killed: it is thawed when busbw has ended."""
    group = FREEZER / f"fault-{os.getpid()}-{fault.rank}"
    group.mkdir(exist_ok=True)
    run.undo(lambda: _remove_group(group))
    pid = run.pid_of(fault.rank)
    (group / "cgroup.procs").write_text(str(pid))
    (group / "freezer.state").write_text("FROZEN")
    run.when_ended(lambda: (group / "freezer.state").write_text("THAWED"))


def _remove_group(group: Path) -> None:
    """Remove a cgroup, which is busy until the last of its processes has ended."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


def nothing(_fault: Any, _run: Run) -> None:
    """What is wrong was set up before."""


def wrong_interface(fault: Any, run: Run) -> None:
    assert run.lab is not None
    first = run.lab.hosts[0]
    run.ip("-n", first.namespace, "link", "add", "own0", "type", "veth", "peer", "own1")
    run.ip("-n", first.namespace, "addr", "add", "10.99.0.1/24", "dev", "own0")
    run.ip("-n", first.namespace, "link", "set", "own0", "up")
    run.setting.ifname = {
        "absent": "nosuch0",
        "unshared": "10.99.0.0/24",
        "first only": first.interface,
    }[fault.variant]


def small_disk(_fault: Any, run: Run) -> None:
    run.mount_small_disk(kilobytes=12)


def black_hole(_fault: Any, run: Run) -> None:
    """The agent of the second host never answers, as behind a firewall that drops everything."""
    assert run.lab is not None
    text = run.lab.agent.read_text()
    run.lab.agent.write_text(
        text.replace(
            "#!/bin/sh\n",
            f'#!/bin/sh\ncase "$1" in {run.lab.hosts[1].address}) exec sleep 600;; esac\n',
            1,
        )
    )


def stop_named(*names: str) -> Do:
    return lambda _fault, run: _signal_first(run.named(*names), signal.SIGSTOP, names)


def _signal_first(pids: list[int], number: signal.Signals, names: tuple[str, ...]) -> None:
    if not pids:
        raise Gone(f"no {' or '.join(names)} has been started, or it has ended")
    os.kill(pids[0], number)


def drop_packets(fault: Any, run: Run) -> None:
    """One host loses packets: half of those that it gets, or all in one direction."""
    assert run.lab is not None
    hook, interface, condition = {
        "half": ("input", "iifname", "numgen random mod 2 == 0"),
        "in": ("input", "iifname", ""),
        "out": ("output", "oifname", ""),
        "large": ("input", "iifname", "meta length > 1500"),
    }[fault.variant]
    rule = f'meta {interface} != "lo" {condition} drop'
    table = (
        f"table inet fault {{\nchain lose {{\ntype filter hook {hook} priority 0;\n{rule}\n}}\n}}\n"
    )
    words = ["ip", "netns", "exec", run.lab.hosts[fault.host].namespace, "nft", "-f", "-"]
    subprocess.run(words, input=table, text=True, check=True, timeout=10)


def much_data(fault: Any, run: Run) -> None:
    """Half of the packets of small messages would come through at once, and no packet is large."""
    if fault.variant in ("half", "large"):
        run.setting.sweep = tuple(
            shlex.split("--timing classic -b 64K -e 1M --iters 20 --run-cycles 0")
        )


def needs_memory(fault: Any, run: Run) -> None:
    run.setting.sweep = ("--timing", "classic", "-b", "32M", "-e", "32M", "--iters", "3")
    if fault.variant == "limit":
        run.setting.sweep = ("--timing", "classic", "-b", "1G", "-e", "1G", "--iters", "3")
        run.setting.shell = "ulimit -v 1000000"


def little_memory(fault: Any, run: Run) -> None:
    """The rank's control group allows less than its buffers take, so the kernel kills it."""
    if fault.variant == "limit":
        return
    group = memory_group()
    group.mkdir(exist_ok=True)
    run.undo(lambda: _remove_group(group))
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (group / name).exists():
            (group / name).write_text(str(40 << 20))
    (group / "cgroup.procs").write_text(str(run.pid_of(fault.rank)))


def no_nftables() -> str:
    return "" if shutil.which("nft") else "nft (nftables) is not installed"


def no_memory_groups() -> str:
    return (
        ""
        if os.access(memory_group().parent, os.W_OK)
        else "no control group for memory can be made here"
    )


def no_clock() -> str:
    if not os.environ.get("FAULTS_CLOCK"):
        return "it sets the time of day of this machine: FAULTS_CLOCK=1 allows it"
    return "" if _capable(25) else "the time of day may not be set here (CAP_SYS_TIME)"


def _capable(bit: int) -> bool:
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff:")
    )
    return bool(int(line.split()[1], 16) >> bit & 1)


def memory_group() -> Path:
    """A new control group below that of this process; version 1 or 2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    ways = {controllers: way for _, controllers, way in (line.split(":", 2) for line in lines)}
    above = (
        Path("/sys/fs/cgroup/memory" + ways["memory"])
        if "memory" in ways
        else Path("/sys/fs/cgroup" + ways[""])
    )
    return above / f"busbw-fault-{os.getpid()}"


def no_room(fault: Any, run: Run) -> None:
    """Nothing can be written to /dev/shm or to the directory of temporary files, which are this
    run's own.
    """
    place = "/dev/shm" if fault.variant == "/dev/shm" else str(run.temporary)
    run.setting.shell = (
        f"mount -t tmpfs -o size=64k fault {place} && head -c 64k /dev/zero >{place}/filler"
    )
    run.setting.prefix = ("unshare", "--mount")


def own_folder(_fault: Any, run: Run) -> None:
    run.file = run.folder / "results" / "result.json"
    run.file.parent.mkdir()


def remove_folder(_fault: Any, run: Run) -> None:
    """While busbw is stopped: it writes no file meanwhile, and cannot have finished."""
    run.signal_busbw(signal.SIGSTOP)
    try:
        if run.file.exists() and json.loads(run.file.read_bytes())["complete"]:
            raise Gone("everything was measured before")
        shutil.rmtree(run.file.parent)
    finally:
        run.signal_busbw(signal.SIGCONT)


def stop_reading(fault: Any, run: Run) -> None:
    """Nobody reads the output any more, or nobody for a while, so that the pipe is full."""
    if fault.variant == "closed":
        run.close_stdout()
        return
    run.pause_stdout()
    time.sleep(BLOCKED_S)
    run.resume_stdout()


def small_pipe(fault: Any, run: Run) -> None:
    run.setting.small_pipe = fault.variant == "full"
    run.setting.cycles = 12


def nohup(_fault: Any, run: Run) -> None:
    run.setting.ignored = (signal.SIGHUP,)
