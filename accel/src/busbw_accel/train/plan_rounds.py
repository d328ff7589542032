"""The runs of one plan: the exchanges over each transport, then trainings that check
predictions.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec

from busbw.core.errors import BusbwError
from busbw.engines.registry import torch_gpus
from busbw.host import net_plugin
from busbw.measure.job import Job
from busbw.measure.record import encoded, save
from busbw.measure.sink import Sink
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget
from busbw_accel.methods import CODECS
from busbw_accel.train.kinds import PlanJob, PlanResult, TrainJob, TrainResult
from busbw_accel.train.plan_types import AS_IS, CheckRound, MeasuredExchange
from busbw_accel.train.recommendation import recommended
from busbw_accel.train.transports import BY_NAME, Transport
from busbw_accel.train.types import TrainingRuns
from busbw_accel.train.variation import parts

# Local steps to compare by default. The fewest that reach the target are recommended, if nothing
# that exchanges gradients does. int8 cost nothing on top of them (train/recorded_losses.csv).
EVERY = (10, 30, 100, 300)


@dataclass(frozen=True, slots=True)
class Planner:
    """Runs `job` over several transports.

    `sink` makes the sink of a run; its argument is whether the run is the first. Each run updates
    `file`.
    """

    job: PlanJob
    where: LaunchTarget
    file: Path | None
    sink: Callable[[bool], Sink]

    def run(self, transports: Sequence[Transport], check: str) -> PlanResult:
        """Measure over every transport, then check exchanges by training.

        `check`: the exchanges to check: `best`, `all` or `none`. The error of the first transport
        is raised; a later transport that fails is left out. The file gets all completed
        measurements. A check that fails is an error of the result, which is then not complete.
        """
        merged = self._measure(transports)
        try:
            self._check(merged, transports, check)
        except BaseException:
            merged.errors.append("the run ended before its exchanges were checked")
            raise
        finally:
            merged.complete = not merged.errors
            self._save(merged, self.sink(False))
        return merged

    def _measure(self, transports: Sequence[Transport]) -> PlanResult:
        """The exchanges over every transport. The result is not complete before it is checked."""
        merged: PlanResult | None = None
        job = self.job
        for transport in transports:
            sink = self.sink(merged is None)
            try:
                plan = msgspec.structs.replace(job.plan, transport=transport.name)
                self._run(transport, msgspec.structs.replace(job, plan=plan), sink)
            except BusbwError as error:
                if merged is None:
                    raise
                sink.note(f"note: {transport.name} could not be measured: {error.message}")
            finally:
                new = sink.record.result
                if isinstance(new, PlanResult) and merged and merged.plan and new.plan:
                    merged.plan.exchanges += new.plan.exchanges
                    merged.plan.runs += new.plan.runs
                elif isinstance(new, PlanResult):
                    merged = merged or new
                if merged is not None:
                    merged.complete = False
                self._save(merged, sink)
            job = _with_wait(job, merged)
        assert merged is not None
        return merged

    def _run(self, transport: Transport, job: PlanJob | TrainJob, sink: Sink) -> None:
        with _environment(transport.variables):
            run(msgspec.structs.replace(job, net=transport.net), self.where, sink)

    def _save(self, result: PlanResult | None, sink: Sink) -> None:
        """Write the file. A failure is only reported: the result is also on stdout."""
        try:
            if self.file is not None and result and result.plan:
                save(encoded(result), self.file)
        except BusbwError as error:
            sink.note(f"warning: {error.message}; measuring continues")

    def _check(self, merged: PlanResult, transports: Sequence[Transport], check: str) -> None:
        """Train with all exchanges, or with the recommended one until the recommendation stays."""
        plan = merged.plan
        if plan is None or check == "none":
            return
        if check == "all":
            for transport in transports:
                over = [item for item in plan.exchanges if item.transport == transport.name]
                for size in dict.fromkeys(exchange.bucket_mb for exchange in over):
                    exchanges = [item for item in over if item.bucket_mb == size]
                    self._train(merged, transport, exchanges)
        else:
            best = recommended(plan)
            while best is not None and best.checked_s is None:
                if not self._train(merged, BY_NAME[best.transport], [best]):
                    break
                self._save(merged, self.sink(False))
                best = recommended(plan)

    def _train(
        self, merged: PlanResult, transport: Transport, exchanges: Sequence[MeasuredExchange]
    ) -> bool:
        """Train with each exchange, and store its steps.

        All have buckets of the same size. Returns whether all were trained.
        """
        sink = self.sink(False)
        common = {name: getattr(self.job, name) for name in Job.__struct_fields__}
        names = tuple(exchange.method for exchange in exchanges)
        spec = msgspec.structs.replace(self.job.training, methods=names)
        if exchanges and exchanges[0].bucket_mb is not None:
            spec = msgspec.structs.replace(spec, bucket_mb=exchanges[0].bucket_mb)
        try:
            if exchanges:
                self._run(transport, TrainJob(training=spec, **common), sink)
        except BusbwError as error:  # what was measured before is valid without it
            merged.errors.append(
                f"not checked: the training over {transport.name} did not end: {error.message}"
            )
        finally:
            result = sink.record.result
            for exchange in exchanges:
                exchange.checks, exchange.checked_s = [], None
                if isinstance(result, TrainResult):
                    exchange.checks = checks(result.training, exchange.method)
                if exchange.checks:
                    exchange.checked_s = fmean(check.step_s for check in exchange.checks)
        return all(exchange.checks for exchange in exchanges)


def _with_wait(job: PlanJob, measured: PlanResult | None) -> PlanJob:
    """The job for the next transport: a recorded step that does not tell how long it waited waited
    for the exchange over the first one.
    """
    recorded = job.recorded
    if recorded is None or recorded.step_s is None or recorded.waited_s is not None:
        return job
    if measured is None or measured.plan is None:
        return job
    waited_s = max(recorded.step_s - measured.plan.still_s, 0.0)
    return msgspec.structs.replace(
        job, recorded=msgspec.structs.replace(recorded, waited_s=waited_s)
    )


def checks(training: TrainingRuns, method: str) -> list[CheckRound]:
    """The rounds of a training by one method."""
    figures = parts(training, method)
    pairs = zip(figures.alone_s, figures.step_s, strict=True)
    return [CheckRound(alone_s, step_s) for alone_s, step_s in pairs]


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables that the user has not set."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def defaults(where: LaunchTarget) -> tuple[list[str], list[str]]:
    """The methods and the transports to compare by default.

    Transports differ only between GPUs of several hosts.
    """
    hosts = where.named()
    two_d = len(hosts) > 1 and all((host.slots or 1) > 1 for host in hosts)
    if not ((hosts or where.step) and torch_gpus()):
        return methods(two_d=two_d, host=False), [AS_IS]
    plugin = False
    with contextlib.suppress(BusbwError):
        plugin = bool(net_plugin.find())
    transports = [AS_IS, "sockets"]
    if two_d:
        transports.append("tree")
    if plugin:
        transports.append("busbw")
    return methods(two_d=two_d, host=plugin), transports


def methods(*, two_d: bool, host: bool) -> list[str]:
    """The methods to compare by default.

    `two_d`: in two dimensions, for hosts with several ranks each. `host`: codecs that send much
    data are also compared with host staging.
    """
    prefix = "2d+" if two_d else ""
    names = ["none", "2d", "2d+bf16"] if two_d else ["none", "bf16"]
    for codec in CODECS:
        for variant in codec.plan_variants:
            if two_d and "last=" in variant:
                continue
            name = f"{'' if codec.needs_matrices else prefix}{codec.name}{variant}"
            names.append(name)
            if host and codec.plan_with_host and not variant:
                names.append(f"{name}+host")
    return names + [f"{prefix}int8+every={steps}" for steps in EVERY]
