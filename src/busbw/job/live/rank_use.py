"""What a rank did with the time of its steps, lately and before: how long it ran, was ready without
a CPU, was blocked by a device, and was in its DataLoader, torch.save, forward and backward.

All of these are counts that only rise. What rose between two looks is added up over the last
seconds of each of SPANS_S, and over the time before, in which what is older counts less.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from busbw.host import process_times
from busbw.host.cgroup import Quota
from busbw.host.process_times import ProcessTimes

READ_EVERY_S, READINGS = 2.0, 2  # what rose is known from the second reading on
SPANS_S = (6.0, 12.0, 30.0)
WINDOW_S = SPANS_S[-1]
FORGOTTEN_S = 300.0  # what is so old counts 1/e
# The parts of a step in microseconds, by what they are counted over: seconds of the process, steps
# of the rank, or steps that DDP timed.
RAN, WAITING, BLOCKED = "ran", "waiting", "blocked"
INPUT, SAVE, EVALUATION, FORWARD, BACKWARD = "input", "save", "evaluation", "forward", "backward"
SECONDS, STEPS, TIMED, FAULTS = "seconds", "steps", "timed", "faults"
COUNTED_OVER = {
    RAN: SECONDS,
    WAITING: SECONDS,
    BLOCKED: SECONDS,
    INPUT: STEPS,
    SAVE: STEPS,
    FORWARD: TIMED,
    BACKWARD: TIMED,
}


@dataclass(slots=True)
class RankCounts:
    """What a rank's counts rose by in the last of each of SPANS_S, and before; and its process."""

    recent: list[dict[str, float]]
    before: dict[str, float]
    pid: int = 0  # 0 on another host
    cpus: str = ""  # on which it may run
    quota: Quota | None = None  # of CPU time, which stopped it lately
    gpu: str = ""  # bus
    readings: int = 0  # in the last WINDOW_S

    def evidence(
        self, now_us: float, usual_us: float | None, seconds: float = WINDOW_S
    ) -> "RankEvidence":
        """Of steps that have been so long for some seconds, and were so long before; 0 without a
        step.
        """
        spans = [
            span for span, span_s in zip(self.recent, SPANS_S, strict=True) if span_s >= seconds
        ]
        lately = spans[0] if spans else self.recent[-1]
        return RankEvidence(
            now=_of_step(lately, now_us) if now_us else {},
            before=_of_step(self.before, usual_us) if usual_us else {},
            pid=self.pid,
            cpus=self.cpus,
            faults=round(self.recent[-1].get(FAULTS, 0)),
            quota=self.quota,
            gpu=self.gpu,
            readings=self.readings,
        )


@dataclass(slots=True)
class RankEvidence:
    """Microseconds of a step by part, lately and before; what is unknown is left
    out.
    """

    now: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    doing_s: Mapping[str, float] = field(default_factory=dict)  # for how long it is in a part
    pid: int = 0
    cpus: str = ""  # on which it may run
    faults: int = 0  # pages read from a disk lately
    quota: Quota | None = None  # of CPU time, which stopped it lately
    gpu: str = ""  # bus
    readings: int = 0  # in the last WINDOW_S


class RankUse:
    """The counts of one process, from look to look."""

    def __init__(self) -> None:
        self._process: ProcessTimes | None = None
        self._counts: Mapping[str, float] = {}
        self._recent: deque[tuple[float, dict[str, float]]] = deque()
        self._before: dict[str, float] = {}
        self._quota: tuple[float, Quota] | None = None  # and when it was seen to stop the process

    def take(self, at_s: float, process: ProcessTimes | None, counts: Mapping[str, float]) -> None:
        """`process` is None for one of another host; `counts` are what the rank has written."""
        rises = {
            name: counts[name] - self._counts[name] for name in counts.keys() & self._counts.keys()
        }
        if process and self._process:
            rises |= self._of_process(self._process, process)
        self._process, self._counts = process, counts
        self._recent.append((at_s, rises))
        while at_s - self._recent[0][0] > WINDOW_S:
            then_s, oldest = self._recent.popleft()
            kept = max(0.0, 1 - (self._recent[0][0] - then_s) / FORGOTTEN_S)
            self._before = _sum([{name: kept * of for name, of in self._before.items()}, oldest])

    def _of_process(self, before: ProcessTimes, after: ProcessTimes) -> dict[str, float]:
        seconds = after.at_s - before.at_s
        stopping = process_times.throttled(before, after)
        if stopping:
            self._quota = after.at_s, stopping
        return {
            SECONDS: seconds,
            RAN: 1e6 * (after.ran_s - before.ran_s),
            WAITING: 1e6 * process_times.waited_s(before, after),
            BLOCKED: 1e6 * seconds * (after.state == "D"),
            FAULTS: after.major_faults - before.major_faults,
        }

    def counts(self, pid: int, gpu: str) -> RankCounts:
        """Of the process with this number, on the GPU of this bus."""
        process, quota = self._process, None
        if process and self._quota and process.at_s - self._quota[0] < WINDOW_S:
            quota = self._quota[1]
        last_s = self._recent[-1][0] if self._recent else 0.0
        # What rose until a look is of the time since the look before.
        recent = [
            _sum([rises for at_s, rises in self._recent if at_s > last_s - span_s])
            for span_s in SPANS_S
        ]
        cpus = process.cpus if process else ""
        return RankCounts(recent, self._before, pid, cpus, quota, gpu, len(self._recent))


def _sum(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for name, count in part.items():
            sums[name] = sums.get(name, 0.0) + count
    return sums


def _of_step(counts: Mapping[str, float], step_us: float) -> dict[str, float]:
    parts = {}
    for part, base in COUNTED_OVER.items():
        if part in counts and counts.get(base, 0.0) > 0:
            steps = counts[base] * 1e6 / step_us if base == SECONDS else counts[base]
            parts[part] = counts[part] / steps
    return parts
