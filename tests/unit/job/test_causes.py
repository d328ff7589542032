"""Why a job is slow, from what its processes, GPUs and ports show."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_job import STEP_US, WAIT_US, steps, write

from busbw.core.finding import Verdict
from busbw.core.lateness import Lateness, LongSteps, RankDelay, Recurrence
from busbw.core.link_samples import ETHERNET, CounterGroup, GpuState, HostLink, HostSample
from busbw.core.telemetry import TCP
from busbw.host import process, process_times
from busbw.host.busy_processes import LEAST, REST, BusyProcess, BusyProcesses
from busbw.host.cgroup import Quota
from busbw.host.process_times import ProcessTimes
from busbw.job.live.causes import explained
from busbw.job.live.connections import Flow, PathEvidence
from busbw.job.live.files import HostNews
from busbw.job.live.host_watch import (
    GpuEvidence,
    HostEvidence,
    HostSamples,
    PortEvidence,
    gpus_of,
    joined,
    strangers,
)
from busbw.job.live.judge import judge
from busbw.job.live.rank_use import RankEvidence, RankUse
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveRank, LiveVerdict, StepTimes

LATE_US, LATE = 10_000.0, 2
PIDS = {rank: 100 + rank for rank in range(3)}
QUOTA = Quota("/sys/fs/cgroup/job/cpu.max", 0.5, 80, 100)
USUAL = {"ran": 30_000.0, "waiting": 500.0, "blocked": 0.0, "input": 200.0, "save": 0.0}
COMPUTED = {"forward": 10_000.0, "backward": 20_000.0}
FAST = GpuState("b0", 0, 1980, 1980, 0, 60, 650, 5, 16, 16, 18, {100: "python"}, {100: 90})


def gpu(**changes: Any) -> GpuEvidence:
    """The GPU of the late rank; process 102 is the rank."""
    state = FAST.__replace__(bus="b2", index=2, processes={102: "python"}, busy={102: 95})
    state = state.__replace__(
        **{name: value for name, value in changes.items() if hasattr(state, name)}
    )
    shares, used = changes.get("shares", {}), changes.get("used")
    found = GpuEvidence(state, float(state.sm_mhz or 0), 1980.0, shares, used=used)
    found.strangers = strangers(state, PIDS)
    return found


def look(own: dict[str, float] | None = None, **changes: Any) -> JobLook:
    """Three ranks of one host, of which one is late and has `own` in place of the usual parts."""
    evidence = {
        rank: RankEvidence(dict(USUAL | COMPUTED), {}, pid=100 + rank, gpu=f"b{rank}")
        for rank in range(3)
    }
    evidence[LATE].now |= own or {}
    late = RankDelay(LATE, LATE_US, 0.9 * LATE_US, 1.1 * LATE_US, 90, "h")
    found = Lateness([STEP_US] * 100, [0, 1, 2], 3, 500.0, late=[late])
    return JobLook(
        ranks={rank: LiveRank(rank=rank, host="h", pid=100 + rank) for rank in range(3)},
        world=3,
        times=StepTimes(STEP_US, STEP_US, STEP_US, STEP_US, 500.0, found, mean_us=STEP_US),
        evidence=changes.get("evidence", evidence),
        host=changes.get("host", HostEvidence()),
    )


def cause_of(look: JobLook) -> LiveVerdict:
    return explained(LiveVerdict(Verdict.WARN, "late", "late: rank 2", [LATE], (), "next"), look)


@pytest.mark.parametrize(
    ("own", "cause", "why"),
    [
        ({"waiting": 9_900.0}, "cpu", "waited for a CPU for 9.400 ms of the 10.00 ms"),
        ({"input": 9_000.0}, "input", "waited for its DataLoader for 8.800 ms of the 10.00 ms"),
        ({"blocked": 8_000.0}, "disk", "was blocked by a device (state D) for 8.000 ms"),
        ({"backward": 29_000.0, "ran": 39_000.0}, "compute", "in forward and backward by 9.000 ms"),
        ({"ran": 38_000.0}, "compute", "rank 2 needed its CPU for longer, by 8.000 ms"),
        (
            {"ran": 33_000.0, "waiting": 2_000.0},
            "unknown",
            "the other ranks, in ms: ran 3.05, without a CPU 1.45",
        ),
        (
            {"forward": 14_000.0},
            "unknown",
            "in ms: forward 4.00, elsewhere (as in the optimizer or other calls) 6.00",
        ),
        # Without a CPU it is in each part for longer: that is the cause of all.
        ({"waiting": 9_900.0, "input": 9_900.0, "forward": 19_000.0}, "cpu", "waited for a CPU"),
        ({"input": 10_900.0}, "input", "waited for its DataLoader for 10.00 ms, all of the delay"),
        # On busy CPUs who runs longer waits longer.
        (
            {"ran": 60_000.0, "waiting": 1_000.0},
            "compute",
            "by 30.50 ms, more than the delay of 10.00 ms",
        ),
        ({"waiting": 3_500.0, "backward": 28_000.0}, "cpu", "for 3.000 ms of the 10.00 ms"),
        (
            {"waiting": 3_500.0, "backward": 28_000.0, "ran": 36_000.0},
            "compute",
            "used a CPU for 6.100",
        ),
        ({"input": 9_900.0, "ran": 39_900.0}, "input", "waited for its DataLoader"),
    ],
)
def test_the_part_that_explains_a_delay_is_its_cause(
    own: dict[str, float], cause: str, why: str
) -> None:
    found = cause_of(look(own))
    assert (found.cause, found.verdict) == (cause, Verdict.WARN)
    assert why in found.why
    assert bool(found.wrong_if) == (cause != "unknown")


def test_parts_of_an_unknown_delay_are_in_one_unit_and_none_is_below_a_hundredth() -> None:
    own = {"ran": 33_000.0, "blocked": 99.0, "input": -180.2, "save": 101.0, "waiting": 450.0}
    found = cause_of(look(own | {"forward": 10_050.0, "backward": 20_000.0}))
    assert found.why == (
        "unknown: of 10.00 ms, compared with the other ranks, in ms: ran 3.00,"
        " in its DataLoader -0.38, in torch.save 0.10, elsewhere (as in the optimizer or other"
        " calls) 10.23"
    )
    assert cause_of(look({"forward": 10_000.0})).why.endswith("other calls) 10.00")
    alone = {LATE: RankEvidence({"ran": 50.0})}
    assert cause_of(look(evidence=alone)).why == "unknown: its process cannot be read from here"


def test_checkpoints_of_one_rank_are_expected() -> None:
    found = cause_of(look({"save": 9_000.0}))
    assert (found.kind, found.verdict, found.suspects) == ("checkpoint", Verdict.PASS, ())


def test_a_quota_that_stops_the_late_rank_is_named() -> None:
    job = look({"waiting": 9_900.0})
    job.evidence[LATE].quota = QUOTA
    found = cause_of(job)
    text = "the cgroup allows 50.00 ms of CPU time in each 100.0 ms, that is 0.5 CPUs ("
    assert f"; {text}{QUOTA.path}), and has stopped it in 80 periods" in found.why
    assert found.next.startswith(f"echo max > {QUOTA.path}  # as root")


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "echo -1 > /sys/fs/cgroup/cpu/job/cpu.cfs_"),
        (f"/sys/fs/cgroup/cpu/docker/{'a1' * 32}/cpu.cfs_quota_us", "docker update --cpus N a1a1"),
        (f"/sys/fs/cgroup/system.slice/docker-{'b2' * 32}.scope/cpu.max", "docker update --cpus"),
        ("/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cpu.max", "raise resources.limits.cpu"),
        (
            "/sys/fs/cgroup/system.slice/train.service/cpu.max",
            "systemctl set-property --runtime tr",
        ),
        ("/sys/fs/cgroup/cpu.max", "raise the container's quota from outside: docker --cpus, "),
    ],
)
def test_a_quota_is_raised_where_it_is_set(path: str, command: str) -> None:
    job = look({"waiting": 9_900.0})
    job.evidence[LATE].quota = Quota(path, 0.5, 80, 100)
    assert cause_of(job).next.startswith(command)


@pytest.mark.parametrize(
    ("own", "cause", "why"),
    [
        (
            {"sm_mhz": 1200, "shares": {"sw_power_cap": 1.0, "gpu_idle": 0.5}},
            "throttled",
            "GPU 2 runs at 1200 MHz, others at 1980 MHz: sw_power_cap in 100.0 % of",
        ),
        ({"sm_mhz": 1200}, "throttled", "NVML names no reason"),
        ({"sm_mhz": 1860}, "unknown", ""),  # 6 % explain no delay of 20 %
        (
            {"processes": {102: "a", 7: "b"}, "busy": {7: 40}},
            "shared",
            "process 7 (b), which takes",
        ),
        ({"processes": {102: "a", 7: "b"}, "busy": {7: 1}}, "unknown", ""),  # it only has memory
        ({"processes": {102: "a", 7: "b"}, "busy": None}, "shared", "which has memory on it"),
        ({"processes": {102: "a", 100: "b"}, "busy": None}, "unknown", ""),  # both are of the job
        ({"processes": {7: "b"}, "busy": {7: 40}}, "unknown", ""),  # pids of another namespace
        ({"processes": {102: "a", 9: "nvidia-cuda-mps"}, "busy": {9: 80}}, "unknown", ""),
        (
            {"used": 0.98},
            "compute",
            "ran on GPU 2 in 98.0 % of the time, on those of other ranks in",
        ),
        ({"used": 0.8}, "launch", "rank 2 gives its GPU work too late"),
        ({"pcie_width": 4}, "pcie", "is x4 of generation 5, those of other ranks have x16"),
        ({"nvlinks": 17}, "nvlink", "17 links are active, on others 18"),
    ],
)
def test_a_gpu_unlike_the_others_is_the_cause(own: dict[str, Any], cause: str, why: str) -> None:
    gpus = {"b0": GpuEvidence(FAST, 1980.0, used=0.97), "b2": gpu(**own)}
    found = cause_of(look(host=HostEvidence(gpus)))
    assert found.cause == cause
    assert why in found.why


def test_a_quota_of_the_late_rank_alone_is_the_cause_before_its_gpu() -> None:
    for also, cause in ((None, "cpu"), (QUOTA, "launch")):
        job = look(
            host=HostEvidence({"b0": GpuEvidence(FAST, 1980.0, used=0.97), "b2": gpu(used=0.6)})
        )
        job.evidence[LATE].quota, job.evidence[0].quota = QUOTA, also
        assert also or cause_of(job).why.startswith("of rank 2 alone the cgroup allows 50.00 ms of")
        assert cause_of(job).cause == cause


@pytest.mark.parametrize(("before_mhz", "shares"), [(1980.0, {}), (1200.0, {"hw_slowdown": 1.0})])
def test_the_only_gpu_is_compared_with_its_clock_before_or_its_largest(
    before_mhz: float, shares: dict[str, float]
) -> None:
    own = gpu(sm_mhz=1200, shares=shares)
    own.before_mhz = before_mhz
    found = cause_of(look(host=HostEvidence({"b2": own})))
    assert found.cause == "throttled"
    assert "GPU 2 runs at 1200 MHz, usually at 1980 MHz" in found.why


def test_a_late_rank_that_computes_no_longer_may_have_a_slow_link() -> None:
    for grew_us, own, cause in (
        (20_000.0, {}, "link"),
        (2_000.0, {}, "unknown"),
        (20_000.0, {"forward": 14_000.0}, "unknown"),
    ):
        job = look(own, host=HostEvidence(resent=40.0, before_resent=0.0))
        assert job.times
        job.times.wait_more_us = grew_us
        found = cause_of(job)
        assert (found.cause, found.suspects) == (cause, [LATE])
        assert ("rank 2 computes no longer; communication" in found.why) == (cause == "link")


def test_a_host_is_the_cause_if_all_its_ranks_are_late_without_another() -> None:
    job = look({"backward": 29_000.0})
    assert job.times and job.times.late
    job.times.late = job.times.late.__replace__(hosts=["h"])
    assert cause_of(job).cause == "host"
    job.evidence[LATE].now["waiting"] = 9_900.0
    assert cause_of(job).cause == "cpu"


def test_a_rank_that_is_compared_with_none_only_waits() -> None:
    for part, cause in (("waiting", "cpu"), ("ran", "unknown")):
        alone = {LATE: RankEvidence({part: 39_000.0})}
        assert cause_of(look(evidence=alone)).cause == cause
    assert cause_of(look(evidence={})).why == "unknown: its process cannot be read from here"


@pytest.mark.parametrize(
    ("state", "readings", "why"),
    [
        ("S", 0, "not known yet: rank 2 is read every 2 s"),
        ("S", 1, "not known yet: rank 2 is read every 2 s"),
        ("S", 2, "unknown: its process cannot be read from here"),
        (None, 0, "unknown: its process cannot be read from here"),  # of another host
    ],
)
def test_a_process_that_was_not_read_twice_is_not_known_yet(
    state: str | None, readings: int, why: str
) -> None:
    job = look(evidence={LATE: RankEvidence(readings=readings)})
    job.ranks[LATE].state = state
    assert cause_of(job).why == why


PORT = {"name": "eth0", "rate": 1.25e9, "before_rate": 1.25e9, "carried": 1e8, "before": 2e8}


@pytest.mark.parametrize(
    ("now", "waits_us", "port", "cause", "why"),
    [
        ({"waiting": 20_000.0}, 0.0, {}, "cpu", "all ranks waited for a CPU for 19.50 ms of"),
        ({"input": 20_000.0}, 0.0, {}, "input", "all ranks waited for their DataLoaders"),
        ({"backward": 40_000.0}, 0.0, {}, "compute", "all ranks took longer in forward"),
        (
            {},
            25_000.0,
            {},
            "link",
            "communication took longer by 25.00 ms, all of the delay; no port",
        ),
        ({}, 25_000.0, {"rate": 1.25e8, "carried": 1.2e8}, "link", "eth0 runs at 1 Gbit/s, before"),
        ({}, 25_000.0, {"findings": ["packets are lost"]}, "link", "eth0: packets are lost"),
        ({}, 25_000.0, {"carried": 1.1e9}, "traffic", "about 7.73 Gbit/s are not this job's"),
        ({}, 0.0, {"carried": 1.1e9}, "unknown", "unknown: of 25.00 ms, compared with before"),
    ],
)
def test_steps_that_became_longer_have_the_part_that_grew(
    now: dict[str, float], waits_us: float, port: dict[str, Any], cause: str, why: str
) -> None:
    evidence = {
        rank: RankEvidence(USUAL | COMPUTED | now, dict(USUAL | COMPUTED)) for rank in range(3)
    }
    job = look(evidence=evidence, host=HostEvidence(ports=[PortEvidence(**PORT | port)]))
    assert job.times
    job.times.mean_us, job.times.usual_mean_us = 75_000.0, 50_000.0
    job.times.wait_grew_us = waits_us
    found = explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer"), job)
    assert found.cause == cause
    assert why in found.why


def test_steps_may_be_longer_for_what_grew_of_one_rank() -> None:
    evidence = {rank: RankEvidence(USUAL | COMPUTED, USUAL | COMPUTED) for rank in range(3)}
    evidence[1].now |= {"waiting": 20_000.0, "forward": 30_000.0}
    job = look(evidence=evidence)
    assert job.times
    job.times.mean_us, job.times.usual_mean_us = 75_000.0, 50_000.0
    found = explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer"), job)
    assert (found.cause, found.suspects) == ("cpu", ())
    assert found.why.startswith("rank 1 waited for a CPU for 19.50 ms of the 25.00 ms")
    job.times.mean_us = 49_000.0  # of the median alone
    found = explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer"), job)
    assert found.cause == "unknown"


@pytest.mark.parametrize(
    ("now", "waits_us", "command"),
    [
        ({"waiting": 11e3}, 2e3, "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20"),
        ({"blocked": 10e3}, 2e3, "cat /proc/100/stack /proc/100/io"),
        ({"input": 10e3}, 2e3, "py-spy dump --pid 100 --subprocesses"),
        ({"save": 10e3}, 2e3, "py-spy dump --pid 100 --subprocesses"),
        ({}, 10e3, "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20"),
        ({}, 2e3, "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20"),
    ],
)
def test_the_next_command_of_an_unknown_cause_is_that_of_the_largest_part(
    now: dict[str, float], waits_us: float, command: str
) -> None:
    job = look(evidence={rank: RankEvidence(USUAL | now, dict(USUAL)) for rank in range(3)})
    assert job.times
    job.times.mean_us, job.times.usual_mean_us, job.times.wait_grew_us = 75e3, 50e3, waits_us
    found = explained(LiveVerdict(Verdict.WARN, "longer", "longer", (), (), "next"), job)
    assert (found.cause, found.next) == ("unknown", command)
    if waits_us > 5e3:
        job.ranks[1].host = "g"
        found = explained(LiveVerdict(Verdict.WARN, "longer", "longer", (), (), "next"), job)
        assert found.next.startswith("busbw check --hosts g,h; busbw link --hosts g,h ")


def crowded(waited_us: Sequence[float], **changes: Any) -> LiveVerdict:
    """Steps of ranks on the CPUs 0-1 that are longer by 100 ms, in which they waited so long."""
    evidence = {
        rank: RankEvidence(USUAL | {"waiting": 500.0 + us}, dict(USUAL), cpus="0-1")
        for rank, us in enumerate(waited_us)
    }
    job = look(evidence=evidence, host=HostEvidence(busy=changes.get("busy")))
    job.ranks = {rank: LiveRank(rank=rank, host="h", pid=100 + rank) for rank in evidence}
    assert job.times
    job.times.mean_us, job.times.usual_mean_us = 150_000.0, 50_000.0
    return explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer", (), (), "next"), job)


@pytest.mark.parametrize(
    ("waited_us", "why"),
    [
        ((52e3, 44e3), "all ranks waited for one of the CPUs 0-1 for 48.00 ms of the 100.0 ms in"),
        ((52e3, 30e3, 44e3), "all ranks waited for one of the CPUs 0-1 for 44.00 ms of the 100.0"),
        ((52e3, 1e3, 44e3), "ranks 0,2 waited for one of the CPUs 0-1 for 48.00 ms of the 100.0"),
        ((52e3, 1e3), "rank 0 waited for one of the CPUs 0-1 for 52.00 ms of the 100.0 ms"),
        ((52e3, 1e3, 1e3), "rank 0 waited for one of the CPUs 0-1 for 52.00 ms of the 100.0 ms"),
    ],
)
def test_ranks_that_wait_for_cpus_in_turns_are_all_named(
    waited_us: Sequence[float], why: str
) -> None:
    found = crowded(waited_us)
    assert found.cause == "cpu"
    assert found.why.startswith(why)
    named = [rank for rank, us in enumerate(waited_us) if us > 25e3]
    assert len(named) == 1 or all(
        f"rank {rank} {1e-3 * waited_us[rank]:.2f} ms" in found.why for rank in named
    )


def test_the_processes_that_use_the_cpus_of_waiting_ranks_are_named() -> None:
    busy = [
        BusyProcess(7, "stress", 0.97, "0-1", "h"),
        BusyProcess(8, "elsewhere", 3.0, "2-3", "h"),
        BusyProcess(9, "other host", 1.0, "0-1", "g"),
        BusyProcess(10, "cc1", 0.4, "", "h"),
        BusyProcess(11, "make", 0.3, "0-3", "h"),
        BusyProcess(12, "fourth", 0.2, "0-1", "h"),
    ]
    found = crowded((52e3, 44e3), busy=busy)
    said = "stress (process 7) 97 % of a CPU, cc1 (process 10) 40 % of a CPU, make (process 11) 30 "
    assert f"; other processes used these CPUs: {said}" in found.why
    assert "fourth" not in found.why
    assert found.next == "ps -o pid,user,etime,args -p 7,10,11"
    found = crowded((52e3, 44e3), busy=[])
    assert found.why.endswith("; no other process that is seen there used 5 % of a CPU")
    assert found.next.startswith("ps -eLo psr,pcpu,pid,comm ")
    assert "other process" not in crowded((52e3, 44e3)).why  # it is not known yet


def test_processes_of_several_hosts_are_named_with_their_host() -> None:
    busy = [BusyProcess(7, "stress", 0.97, "", "g"), BusyProcess(8, "stress", 0.5, "", "h")]
    job = look({"waiting": 9_900.0}, host=HostEvidence(busy=busy))
    job.ranks[LATE].host = "g"
    found = cause_of(job)
    assert found.why.endswith(
        "; other processes used these CPUs: stress (process 7 on g) 97 % of a CPU"
    )
    assert found.next == "ps -o pid,user,etime,args -p 7  # on g"
    news = HostNews(host=HostEvidence(busy=busy, unread=[]))
    again = msgspec.json.decode(msgspec.json.encode(news), type=HostNews)  # as of another host
    assert again.host and again.host.busy == busy
    assert joined({"g": again.host, "h": HostEvidence()}).busy == busy


def test_what_used_the_cpus_may_have_ended() -> None:
    ended = BusyProcess(0, "processes that ended", 0.8, "", "h")
    found = crowded((30e3, 27e3), busy=[ended])  # less than half, on a host without GPUs
    assert found.cause == "cpu"
    assert found.why.endswith(
        "; other processes used these CPUs: processes that ended 80 % of a CPU"
    )
    assert found.next.startswith("ps -eLo ")
    assert crowded((30e3, 27e3), busy=[]).cause == "unknown"
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        busy = BusyProcesses()
        busy.take(0.0)
        while process.cpu_s(other.pid) < 3 * REST * busy.due_s:
            os.sched_yield()
        other.kill()
    busy.take(busy.due_s)
    rest = [one for one in busy.most([]) or () if not one.pid]
    assert rest and rest[0].share >= REST


def test_busy_processes_are_those_of_no_rank() -> None:
    """One is this process's child, one a child of that child."""
    spin = "while True: pass"
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with (
        subprocess.Popen([sys.executable, "-c", spin]) as stranger,
        subprocess.Popen([sys.executable, "-c", below]) as rank,
    ):
        busy = BusyProcesses()
        busy.take(0.0)
        assert busy.most([rank.pid]) is None
        while not (below_rank := list(process.children(rank.pid))):
            os.sched_yield()
        pids = {stranger.pid, *below_rank}
        while min(process.cpu_s(pid) for pid in pids) < 2 * LEAST * busy.due_s:
            os.sched_yield()
        busy.take(busy.due_s)
        found = busy.most([rank.pid])
        process.kill_with_children(rank.pid)
        stranger.kill()
    assert found is not None
    assert pids & {one.pid for one in found} == {stranger.pid}
    assert all(one.cpus for one in found if one.pid)


@pytest.mark.parametrize(
    ("sends", "name", "suspects"),
    [
        ((True, False), "; slow: what a sends", [0, 1]),
        ((False, None), "; slow: what a receives", [0, 1]),  # from no host of the job
        ((None, None), "", []),
        ((True, True), "", []),
    ],
)
def test_the_host_that_sends_another_programs_bytes_is_named(
    sends: tuple[bool | None, bool | None], name: str, suspects: list[int]
) -> None:
    ports = []
    for host, way in zip("ab", sends, strict=True):
        known = PORT | {"name": f"{host} eth0", "carried": 1.1e9 if way is not None else 1e8}
        ports.append(PortEvidence(**known, host=host, sends=way))
    if sends == (None, None):
        ports[0].carried = 1.1e9
    job = look(evidence={}, host=HostEvidence(ports=ports))
    job.ranks[1].host = job.ranks[0].host = "a"
    job.ranks[2].host = "b"
    assert job.times
    job.times.mean_us, job.times.usual_mean_us, job.times.wait_grew_us = 75e3, 50e3, 25e3
    found = explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer"), job)
    assert (found.cause, found.message) == ("traffic", f"steps are longer{name}")
    assert list(found.suspects) == suspects


def slow_path(sender: str, local: str, peer: str, waited_us: float) -> PathEvidence:
    found = PathEvidence(sender, local, peer)
    found.before, found.now = Flow(100.0, 1e9, 10e6), Flow(10.0, 1e8, waited_us)
    found.parts = [Flow(2.0, 2e7, waited_us / 5)] * 5
    return found


@pytest.mark.parametrize("grew_us", [25e3, 1e3])
def test_a_rank_is_not_late_if_it_waits_for_a_slow_link(grew_us: float) -> None:
    """All ranks wait longer for gradients, and one is said to be late for it."""
    paths = [
        slow_path("h", "10.0.0.1", "10.0.0.2", 6e6),
        slow_path("g", "10.0.0.2", "10.0.0.1", 2e6),
    ]
    job = look({"backward": 29_000.0}, host=HostEvidence(paths=paths))
    job.ranks[0].host = "g"
    assert job.times
    job.times.mean_us, job.times.usual_mean_us, job.times.wait_grew_us = 75e3, 50e3, grew_us
    found = cause_of(job)
    if grew_us < 12.5e3:
        assert (found.kind, found.cause) == ("late", "compute")
        return
    assert (found.kind, found.cause, list(found.suspects)) == ("longer", "link", [1, 2])
    assert found.message == "steps are longer: 75.00 ms, before 50.00 ms; slow: what h sends to g"
    assert "what h sends to g: its data are acknowledged at 0.133 Gbit/s" in found.why


def test_segments_that_tcp_sends_again_are_a_sign_of_the_link() -> None:
    job = look(host=HostEvidence(resent=40.0, before_resent=2.0))
    assert job.times
    job.times.mean_us, job.times.usual_mean_us, job.times.wait_grew_us = 75e3, 50e3, 25e3
    found = explained(LiveVerdict(Verdict.WARN, "longer", "steps are longer"), job)
    assert "TCP sent 40 segments again per second, before 2" in found.why


@pytest.mark.parametrize(
    ("kind", "doing", "verdict", "said"),
    [
        ("missing", {"input": 11.0}, Verdict.FAIL, "missing: rank 2 has been in its DataLoader"),
        ("missing", {"save": 11.0}, Verdict.UNKNOWN, "checkpoint: rank 2 has been in torch.save"),
        (
            "missing",
            {"evaluation": 12.0},
            Verdict.UNKNOWN,
            "evaluation: rank 2 has been evaluating",
        ),
        ("missing", {"save": 400.0}, Verdict.FAIL, "missing: rank 2 has been in torch.save"),
        ("missing", {"input": 1.0}, Verdict.FAIL, "missing: "),  # it is not stuck there
        ("still", {"input": 11.0}, Verdict.WARN, "still: each of them has been in its DataLoader"),
        ("still", {"evaluation": 11.0}, Verdict.UNKNOWN, "evaluation: each of them has been"),
    ],
)
def test_what_ranks_are_in_while_others_wait(
    kind: str, doing: dict[str, float], verdict: Verdict, said: str
) -> None:
    job = look()
    for rank in job.ranks.values():
        rank.still_s = 12.0
        job.evidence[rank.rank].doing_s = doing
    before = Verdict.FAIL if kind == "missing" else Verdict.UNKNOWN
    found = explained(LiveVerdict(before, kind, kind, [LATE]), job)
    assert found.verdict is verdict
    assert f"{found.kind}: {found.why}".startswith(said)


def test_a_rank_that_a_device_blocks_is_said_to_be() -> None:
    job = look()
    job.ranks[LATE].state = "D"
    found = explained(LiveVerdict(Verdict.FAIL, "missing", "missing", [LATE]), job)
    assert (found.cause, found.why) == ("disk", "rank 2 is blocked by a device (state D)")


def test_a_job_without_a_late_rank_says_what_its_steps_have() -> None:
    job = look()
    assert job.times and job.times.late
    job.times.late = job.times.late.__replace__(
        late=[], long=LongSteps(Recurrence(4, 5_000.0, 9, 69, 20))
    )
    for rank in job.evidence.values():
        rank.now |= {"input": 25_000.0, "save": 150.0}
    found = explained(LiveVerdict(Verdict.PASS, "", "no rank was late"), job)
    assert found.verdict is Verdict.PASS
    assert found.evidence[0] == "input: ranks are in their DataLoader for 50.0 % of each step"
    assert found.evidence[1].startswith("longer on all ranks, none of which was late: 4 of 100")
    assert found.evidence[1].endswith("; torch.save took most of it: checkpoints")


def times(at_s: float, **changes: Any) -> ProcessTimes:
    values = {"ran_s": at_s / 2, "waited_s": {1: at_s / 10, 2: 0.0}, "state": "R"}
    values |= {"major_faults": 0, "cpus": "0-3", "quotas": [Quota("max", 2.0, int(at_s), 100)]}
    return ProcessTimes(at_s=at_s, **values | changes)  # type: ignore[arg-type]


def test_the_parts_of_a_step_are_those_of_the_last_half_minute() -> None:
    use = RankUse()
    for second in range(0, 102, 2):
        slow = max(0.0, second - 60.0)
        counts = {"steps": 20.0 * second, "input": 1e3 * (second + slow), "timed": 0.0}
        process = times(float(second), waited_s={1: 0.1 * second, 7: 0.3 * slow}, state="D")
        use.take(float(second), process, counts)
    found = use.counts(7, "").evidence(50_000.0, 50_000.0)
    assert found.now == pytest.approx(
        {"ran": 25e3, "waiting": 15e3, "blocked": 50e3, "input": 100.0}
    )
    assert found.before["waiting"] == pytest.approx(6e3, rel=0.1)
    assert found.before["input"] == pytest.approx(55.0, rel=0.05)
    assert found.readings > 1
    assert (found.cpus, found.quota) == ("0-3", Quota("max", 2.0, 100, 100))
    assert use.counts(7, "").evidence(0.0, None).now == {}


def test_the_times_of_this_process_are_read() -> None:
    before = process_times.read(os.getpid())
    sum(range(10_000_000))
    after = process_times.read(os.getpid())
    assert before and after and after.ran_s > before.ran_s > 0
    assert process_times.waited_s(before, after) >= 0.0
    assert before.cpus and before.state == "R"
    assert process_times.read(1 << 22) is None


def sample(at_s: float, sent: int, resent: int, gpus: tuple[GpuState, ...]) -> HostSample:
    link = HostLink("eth0", ETHERNET, 1.25e9)
    groups = {
        ("eth0", "dev"): CounterGroup(at_s, 1, {"tx_bytes": sent, "rx_bytes": 0}),
        (TCP, "snmp"): CounterGroup(at_s, 0, {"RetransSegs": resent}),
    }
    return HostSample(at_s, (link,), groups, ("NVML: it hangs",), gpus)


def test_samples_of_a_host_are_means_of_now_and_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = HostSamples()
    assert samples.evidence() == HostEvidence()
    sent = resent = 0
    for number in range(30):
        is_slow = number >= 18
        clock, reasons = (1200, 4) if is_slow else (1980, 0)
        gpu = FAST.__replace__(sm_mhz=clock, reasons=reasons, used=75)
        samples.take(sample(3.0 * number, sent, resent, (gpu,)))
        sent, resent = sent + (600_000 if is_slow else 300_000), resent + 30 * is_slow
    found = samples.evidence()
    assert (found.gpus["b0"].sm_mhz, found.gpus["b0"].used) == (1200.0, 0.75)
    assert found.gpus["b0"].before_mhz == pytest.approx(1980.0, rel=0.01)
    assert found.gpus["b0"].reasons == {"sw_power_cap": 1.0}
    (port,) = found.ports
    assert (port.carried, port.rate, found.resent) == (200e3, 1.25e9, 10.0)
    assert port.before == pytest.approx(100e3, rel=0.02)
    assert found.before_resent == pytest.approx(0.0, abs=0.2)
    for driver, unread in ((tmp_path, ("NVML: it hangs",)), (tmp_path / "none", ())):
        monkeypatch.setattr("busbw.job.live.host_watch.NVIDIA_DRIVER", driver)
        assert samples.evidence().unread == unread


def test_the_gpu_of_a_rank_is_found_by_its_process_or_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = HostEvidence({"b0": GpuEvidence(FAST), "b2": gpu()})
    assert gpus_of(host, {0: 100, 2: 102}) == {0: "b0", 2: "b2"}
    variables = b"LOCAL_RANK=1\0CUDA_VISIBLE_DEVICES=3,2\0"
    monkeypatch.setattr("busbw.host.process.read_memory_file", lambda *_: variables)
    assert gpus_of(host, {5: os.getpid()}) == {}, "a rank on CPUs"
    (tmp_path / "nvidia2").touch()
    monkeypatch.setattr("busbw.job.live.host_watch.NVIDIA_DEVICES", str(tmp_path / "nvidia"))
    with (tmp_path / "nvidia2").open("rb"):
        assert gpus_of(host, {5: os.getpid()}) == {5: "b2"}
    assert gpus_of(HostEvidence(), {5: 7}) == {}


def test_a_process_that_a_rank_started_is_no_stranger() -> None:
    state = FAST.__replace__(processes={os.getppid(): "rank", os.getpid(): "loader"}, busy=None)
    assert strangers(state, {0: os.getppid()}) == {}
    assert list(strangers(state, {0: os.getpid()})) == [os.getppid()]


def test_what_ranks_wrote_gives_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataLoader that takes 4 ms of each step of one rank."""
    watched = JobFolder(tmp_path)
    for second in range(0, 12, 2):
        for rank in range(3):
            slow_us = 4000.0 if rank == 1 else 0.0
            count = 100 + 20 * second
            spent = {"input": slow_us * count, "save": 0.0}
            own = steps(count, late_us=slow_us, seed=rank) | {"spent_us": spent}
            write(tmp_path, rank, own)
        monkeypatch.setattr("time.monotonic", lambda at_s=float(second): at_s)
        found = judge(watched.look())
    assert (found.kind, found.suspects, found.cause) == ("late", [1], "input")
    assert found.why.startswith("input: rank 1 waited for its DataLoader for ")
    assert ", all of the delay, 4.000 ms in each step" in found.why
    assert WAIT_US > 4000.0


def test_waits_that_grew_make_the_link_the_cause(tmp_path: Path) -> None:
    watched = JobFolder(tmp_path)
    for first in (0, 400, 800):
        for rank in range(3):
            own = steps(1400, seed=rank)
            for name in ("steps_us", "waits_us"):
                own[name][700:] = [us + 25_000.0 for us in own[name][700:]]
                own[name] = own[name][first : first + 600]
            write(tmp_path, rank, own | {"first_step": first})
        found = judge(watched.look(50.0 * first))
    assert (found.kind, found.cause) == ("longer", "link")
    assert found.why.startswith("communication took longer by 2")
