"""The two kinds of runs that train a model: the benchmark, and the measurements for a plan.

Jobs, results, and what rank 0 reports.
"""

from statistics import median
from typing import Any

from busbw.core.result import Outcome
from busbw.core.shown import Tabular
from busbw.measure.events import Event
from busbw.measure.job import Job, RunKind
from busbw.pattern.training.recorded_step import RecordedStep
from busbw_accel.train.plan_types import Plan, PlanSpec
from busbw_accel.train.types import TrainingRuns, TrainRun, TrainSpec

PERFORM = ("busbw_accel.train.job", "train")


class TrainJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="train"):
    """A training benchmark."""

    training: TrainSpec


class PlanJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="plan"):
    """The measurements for a plan: steps, buckets and exchanges of a training.

    Of a `recorded` training only the exchanges are measured.
    """

    training: TrainSpec
    plan: PlanSpec
    recorded: RecordedStep | None = None


class TrainResult(Tabular, Outcome, tag="busbw.training/1"):
    """The result of a training benchmark."""

    training: TrainingRuns

    @property
    def measured(self) -> int:
        """Trainings: one for each method and round."""
        return len(self.training.runs)

    def records(self) -> list[dict[str, Any]]:
        """A row for each method and round, with its samples per second and rank."""
        return [
            {
                "method": run.method,
                "round": run.round,
                "step_s": median(run.steps_s) if run.steps_s else None,
                "rate": run.rate if run.rates else None,
                "loss": run.loss if run.rates else None,
                "counted": run.counted,
                "failed": run.failed,
            }
            for run in self.training.runs
        ]

    def reached(self) -> str:
        """The last method."""
        return _reached(self.training)


class PlanResult(Tabular, Outcome, tag="busbw.plan/1"):
    """The result of measuring ways to exchange gradients; `plan` is None until the step without
    any exchange was measured. `recorded`: the plan is for a recorded training.
    """

    training: TrainingRuns
    plan: Plan | None = None
    recorded: RecordedStep | None = None

    @property
    def measured(self) -> int:
        """Exchanges: one for each method and transport."""
        return len(self.plan.exchanges) if self.plan else 0

    def records(self) -> list[dict[str, Any]]:
        """A row for each method and transport, with the predicted step and efficiency."""
        plan = self.plan
        if plan is None:
            return []
        return [
            {
                "transport": exchange.transport,
                "method": exchange.method,
                "bucket_mb": exchange.bucket_mb,
                "exposed_s": plan.exposed_s(exchange),
                "step_s": plan.step_s(exchange),
                "efficiency": plan.efficiency(exchange),
                "checked_s": exchange.checked_s,
                "counted": exchange.counted,
                "code": exchange.code,
            }
            for exchange in plan.exchanges
        ]

    def reached(self) -> str:
        """The last method."""
        return _reached(self.training)


def _reached(training: TrainingRuns) -> str:
    runs = training.runs
    return f", after the method {runs[-1].method}" if runs else ", before the first method was done"


class Iteration(Event, tag="iteration"):
    """One iteration of a training is measured; `rate` is in samples per second and rank."""

    method: str
    round: int
    number: int
    rate: float


class Trained(Event, tag="trained"):
    """One method of a training is measured, for one round."""

    run: TrainRun

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, TrainResult | PlanResult)
        result.training.runs.append(self.run)
        return True


class Surveyed(Event, tag="surveyed"):
    """A plan with all that is measured so far."""

    plan: Plan

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, PlanResult)
        result.plan = self.plan
        return True


TRAIN = RunKind(TrainJob, TrainResult, PERFORM, (Iteration, Trained))
PLAN = RunKind(PlanJob, PlanResult, PERFORM, (Iteration, Trained, Surveyed))
