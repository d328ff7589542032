"""What a watch of a job exports, in Prometheus' text format.

Only ranks that are named have series of their own, and at most MAX_SUSPECTS of them: the number of
series does not grow with the job.
"""

from collections import Counter
from collections.abc import Sequence

from busbw.core.finding import Verdict
from busbw.host.process import ENDED, STOPPED
from busbw.job.live.episodes import unix_s
from busbw.job.live.types import JobInterval, LiveRank
from busbw.ui.metric_text import COUNTER, GAUGE, Labels, MetricText

MAX_SUSPECTS = 16
SEEN_S = 3600.0  # a verdict is exported for so long after it was last seen
NO_KIND = "none"  # what is wrong if nothing is
STATES = ("running", "stopped", "gone", "ended", "unknown", "missing")

STEP = "busbw_job_step_seconds"
USUAL = "busbw_job_usual_step_seconds"
WAITING = "busbw_job_waiting_ratio"
STEPS = "busbw_job_steps_total"
RANKS = "busbw_job_ranks"
LATENESS = "busbw_job_lateness_seconds"
CALL = "busbw_job_call_seconds"
VERDICT = "busbw_job_verdict"
LAST_SEEN = "busbw_job_verdict_last_seen_timestamp_seconds"
SUSPECT = "busbw_job_suspect"
RANK_LATENESS = "busbw_job_rank_lateness_seconds"
RANK_STEPS = "busbw_job_rank_steps_total"
RANK_CALL = "busbw_job_rank_call_seconds"
LAST_LOOK = "busbw_job_last_look_timestamp_seconds"
# The type and meaning of each metric, and its labels beside `run`, the name of the job's folder.
METRICS = {
    STEP: (GAUGE, "duration of a step, the median of the last 10 s", ()),
    USUAL: (GAUGE, "duration of a step before the last 30 s, the median", ()),
    WAITING: (GAUGE, "share of a step that the rank which waits least waits for gradients", ()),
    STEPS: (COUNTER, "steps that all ranks have made", ()),
    RANKS: (GAUGE, f"ranks by state: {', '.join(STATES)}", ("state",)),
    LATENESS: (GAUGE, "how late the latest rank is in each step, beside the others", ()),
    CALL: (GAUGE, "longest time without progress of a rank that is in a call", ()),
    VERDICT: (
        GAUGE,
        "1 for what is wrong, 0 for what was within the last hour",
        ("verdict", "kind"),
    ),
    LAST_SEEN: (GAUGE, "time at which a verdict was last seen, for an hour", ("verdict", "kind")),
    SUSPECT: (
        GAUGE,
        f"1 for each rank that the verdict names, at most {MAX_SUSPECTS}",
        ("rank", "host", "verdict", "kind"),
    ),
    RANK_LATENESS: (GAUGE, "how late a rank that is named is in each step", ("rank", "host")),
    RANK_STEPS: (COUNTER, "steps of a rank that is named", ("rank", "host")),
    RANK_CALL: (
        GAUGE,
        "time without progress in its call of a rank that is named",
        ("rank", "host"),
    ),
    LAST_LOOK: (GAUGE, "time of the last look at the job", ()),
}


class JobPage:
    """The page after each look: `text`, which other threads read. `run` names the job."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._seen: dict[tuple[Verdict, str], float] = {}
        self.text = b""

    def take(self, interval: JobInterval) -> None:
        now_s = unix_s(interval)
        self._seen[interval.verdict, interval.kind or NO_KIND] = now_s
        self._seen = {key: at_s for key, at_s in self._seen.items() if now_s - at_s < SEEN_S}
        page = _JobMetrics(self._run)
        _add_job(page, interval)
        for (verdict, kind), at_s in self._seen.items():
            page.add(VERDICT, int(at_s == now_s), verdict.value, kind)
            page.add(LAST_SEEN, at_s, verdict.value, kind)
        _add_suspects(page, interval)
        page.add(LAST_LOOK, now_s)
        self.text = page.text()


class _JobMetrics:
    def __init__(self, run: str) -> None:
        self._run, self._lines = run, MetricText()

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a value, if it is known, with the values of the metric's labels."""
        if value is None:
            return
        kind, meaning, names = METRICS[name]
        pairs: Labels = (("run", self._run), *zip(names, labels, strict=True))
        self._lines.add(name, kind, meaning, pairs, value)

    def text(self) -> bytes:
        return self._lines.text().encode()


def _add_job(page: _JobMetrics, interval: JobInterval) -> None:
    ranks = interval.ranks
    page.add(STEP, interval.step_s)
    page.add(USUAL, interval.usual_s)
    page.add(WAITING, interval.waiting)
    page.add(STEPS, min((rank.steps for rank in ranks), default=None))
    states = Counter(map(_state, ranks))
    states["missing"] = interval.world - len(ranks)
    for state in STATES:
        page.add(RANKS, states[state], state)
    page.add(LATENESS, _largest([rank.late_s for rank in ranks]))
    page.add(CALL, _largest([_in_call_s(rank) for rank in ranks]))


def _add_suspects(page: _JobMetrics, interval: JobInterval) -> None:
    known = {rank.rank: rank for rank in interval.ranks}
    kind = interval.kind or NO_KIND
    for number in interval.suspects[:MAX_SUSPECTS]:
        rank = known.get(number)
        labels = str(number), rank.host if rank else ""
        page.add(SUSPECT, 1, *labels, interval.verdict.value, kind)
        if rank:
            page.add(RANK_LATENESS, rank.late_s, *labels)
            page.add(RANK_STEPS, rank.steps, *labels)
            page.add(RANK_CALL, _in_call_s(rank), *labels)


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _in_call_s(rank: LiveRank) -> float:
    return rank.still_s if rank.call else 0.0


def _state(rank: LiveRank) -> str:
    if rank.ended:
        return "ended"
    if rank.state is None:
        return "unknown"
    if rank.state in ENDED:
        return "gone"
    return "stopped" if rank.state in STOPPED else "running"
