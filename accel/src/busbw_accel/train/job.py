"""One rank's part of a training benchmark, or of the measurements for a plan."""

from typing import TYPE_CHECKING

from busbw.core.errors import UsageError
from busbw.launch.control import Control
from busbw.measure import network
from busbw.measure.events import Emit, Ended, EnterPhase, Event, Note, Started, now
from busbw.measure.process_groups import facts, join_groups
from busbw.measure.processors import share_processors
from busbw_accel.train.kinds import Iteration, PlanJob, PlanResult, Trained, TrainJob, TrainResult
from busbw_accel.train.names import require_model
from busbw_accel.train.types import TrainSpec

if TYPE_CHECKING:
    import torch

    from busbw_accel.train.bench import Bench
    from busbw_accel.train.states.bench import StatesBench

ENGINE = "torch"


def train(job: TrainJob | PlanJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run the benchmark on this process. `emit` is only called on process 0."""
    from busbw.engines.torch_rank import TorchRank
    from busbw_accel.train.bench import Bench
    from busbw_accel.train.models import BY_NAME
    from busbw_accel.train.recorded_survey import recorded_model

    spec = job.training
    recorded = job.recorded if isinstance(job, PlanJob) else None
    party = join_groups(control)
    if party.groups > 1:
        raise UsageError("NCCL_TESTS_SPLIT makes groups, but a training uses all ranks", "unset it")
    enter_phase("init", ENGINE)
    with network.starting(job, control) as log:
        opened = TorchRank(party.group, party.local, party.color, control.process)
    enter_phase("prepare", "")
    share_processors(control)
    bench: Bench | StatesBench
    if recorded is not None:
        bench = Bench(spec, recorded_model(recorded), opened.device, control)
    elif spec.states is None:
        bench = Bench(spec, BY_NAME[require_model(spec.model)], opened.device, control)
    else:
        bench = _states_bench(spec, opened.device, control)
    form = PlanResult if isinstance(job, PlanJob) else TrainResult
    result = form(training=bench.training, **facts(job, party, opened))
    if isinstance(result, PlanResult):
        result.recorded = recorded
    result.library.network = network.agreed(job, control, result.library, log.networks)

    def report(event: Event) -> None:
        if control.process == 0:
            emit(event)

    report(Started(result))
    note = network.unconfirmed(job, result.library.network)
    if note:
        report(Note(note))
    _measure(job, bench, report, enter_phase)
    enter_phase("teardown", "")
    report(Ended(now(), {}))
    opened.close()


def _states_bench(spec: TrainSpec, device: "torch.device", control: Control) -> "StatesBench":
    """It imports torch's compiler, which takes a second and which other benchmarks do without."""
    from busbw_accel.train.states.bench import StatesBench

    return StatesBench(spec, device, control)


def _measure(
    job: TrainJob | PlanJob, bench: "Bench | StatesBench", emit: Emit, enter_phase: EnterPhase
) -> None:
    from busbw_accel.train.bench import Bench
    from busbw_accel.train.methods import parse
    from busbw_accel.train.plan_measure import survey
    from busbw_accel.train.recorded_survey import survey_recorded

    if not isinstance(bench, Bench):
        emit(Trained(bench.run(enter_phase)))
        return
    methods = [parse(name) for name in job.training.methods]
    if isinstance(job, TrainJob):
        bench.run(
            methods,
            lambda *values: emit(Iteration(*values)),
            lambda run: emit(Trained(run)),
            enter_phase,
        )
    elif job.recorded is None:
        survey(bench, job.plan, methods, emit, enter_phase)
    else:
        survey_recorded(bench, job.plan, job.recorded, methods, emit, enter_phase)
