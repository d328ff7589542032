"""`busbw plan`: which exchange of gradients hides the network and loses least."""

import contextlib
import os
from typing import Any

import click

from busbw.cli.keep import keep
from busbw.cli.options import groups
from busbw.cli.options.parameters import COUNT, ShareParam, argv, not_empty
from busbw.cli.options.shared import (
    format_option,
    no_history_option,
    result_file,
    result_options,
    start_options,
    take_where,
)
from busbw.cli.output import RunOutput
from busbw.cli.streams import ReaderGone, print_err, print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit, UsageError
from busbw.core.result import Outcome
from busbw.launch import environment
from busbw.measure.events import Ended, Event, Started
from busbw.measure.record import RunRecord, check_writable, encoded, save
from busbw.measure.target import LaunchTarget
from busbw_accel.cli.options import training_options
from busbw_accel.cli.plans import losses as losses_plan
from busbw_accel.cli.plans import recorded as recorded_plan
from busbw_accel.cli.plans import states as states_plan
from busbw_accel.cli.train_states import states_options, take_states
from busbw_accel.train import as_if_network, plan_text
from busbw_accel.train import transports as transport_table
from busbw_accel.train.kinds import PlanJob, PlanResult
from busbw_accel.train.methods import parse_for_plan
from busbw_accel.train.names import require_model
from busbw_accel.train.plan_rounds import Planner, defaults
from busbw_accel.train.plan_types import PlanSpec
from busbw_accel.train.types import TrainSpec


class PlanOutput(RunOutput):
    """Prints the plan over one transport when its last round is measured, or when the run has
    ended early; the header only for the `first` transport.
    """

    def __init__(self, *, first: bool) -> None:
        super().__init__(RunRecord(), save_unasked=False)
        self.first = first
        self._printed = False

    def show(self, event: Event, result: Outcome) -> None:
        """Print the header before the first round, and all lines after the last."""
        if isinstance(event, Started) and self.first and isinstance(result, PlanResult):
            print_out(plan_text.header(result, width()))
        elif isinstance(event, Ended):
            self._print_lines(result)

    def run_aborted(self, reason: str) -> str:
        """Print what was measured."""
        if self.record.result is not None:
            # A failure to print must not hide the reason why the run ended.
            with contextlib.suppress(ReaderGone):
                self._print_lines(self.record.result)
        return super().run_aborted(reason)

    def _print_lines(self, result: Outcome) -> None:
        if isinstance(result, PlanResult) and result.plan and not self._printed:
            self._printed = True
            survey = plan_text.surveyed(result, result.plan, width()) if self.first else ""
            print_out(survey + plan_text.rows(result, result.plan, width()))


@click.command(
    "plan",
    cls=recorded_plan.PlanCommand,
    groups=groups.PLAN,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("model_name", metavar="MODEL", required=False)
@recorded_plan.recorded_options
@losses_plan.losses_options
@training_options
@click.option(
    "--compare",
    default="",
    callback=not_empty,
    help="methods, as in busbw train  [default: all that suit the job]",
)
@click.option(
    "--try",
    "transports",
    default="",
    callback=not_empty,
    help=f"transports: {', '.join(transport_table.BY_NAME)}  [default: all that suit the job]",
)
@click.option(
    "--network",
    default="",
    callback=not_empty,
    help="also predict the step as if the network between hosts were another: 2x,25Gbit/s",
)
@states_options
@states_plan.memory_options
@click.option(
    "--target",
    type=ShareParam(0, 1, closed=True),
    default="95%",
    show_default=True,
    help="share of a rank's own rate to reach",
)
@click.option(
    "--rounds",
    type=COUNT,
    default=4,
    show_default=True,
    help="times to measure everything in turn; one gives no intervals",
)
@click.option(
    "--warmup",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="untimed steps before each measurement",
)
@click.option(
    "--steps",
    type=COUNT,
    default=5,
    show_default=True,
    help="training steps of each measurement and check in a round",
)
@click.option(
    "--iters",
    type=COUNT,
    default=2,
    show_default=True,
    help="timed iterations of each exchange in a round",
)
@click.option(
    "--confirm",
    "check",
    type=click.Choice(("best", "all", "none")),
    default="best",
    show_default=True,
    help="exchanges to check by training",
)
@start_options
@format_option
@result_options
@no_history_option
def command(
    model_name: str | None,
    compare: str,
    transports: str,
    network: str,
    target: float,
    iters: int,
    check: str,
    format_name: str,
    json_name: str,
    force: bool,
    history: bool,
    limit_s: float,
    launch_limit_s: float,
    **fields: Any,
) -> int:
    """Recommend how to exchange the gradients of a training: the exchange that hides the network
    and loses least.

    The training is busbw's own MODEL, or yours: one that `busbw capture` has recorded (--pattern),
    or COMMAND, such as torchrun train.py. COMMAND runs for --capture-steps steps of its
    DistributedDataParallel model, on CPUs or GPUs, and is ended. Then every method exchanges its
    buckets, where its ranks ran or on --hosts, and the step is predicted.

    Of a MODEL, it measures a step of each rank alone, when DDP's buckets are ready in it, and the
    exchange of each bucket: by plain DDP with buckets of several sizes, which lose nothing, then
    with every method, over every transport. Predicts the step from these, then trains with the
    recommended exchange; if that falls short, with the next one. Changes no settings.

    All figures have intervals over --rounds. What is not faster beyond them is not recommended. If
    figures contradict each other, such as a step alone that is longer than one with the network, or
    vary too much, nothing is recommended.

    With --losses, COMMAND is trained by plain DDP and by each method of --compare, and the losses
    of the last quarter of the steps are compared. A method whose loss is higher by more than
    --tolerance is a FAIL, exit code 1; one that cannot be told is UNKNOWN, exit code 3. In COMMAND,
    {run} stands for a folder of each run, {round} for the number of the round.

    With --memory-plan, MODEL is gpt: predicts whether it fits, the memory of GPU and host at the
    peak, and the step, for all states on the GPU, offloaded, and offloaded with streamed weights,
    and recommends one. Measures this machine's GPU, or takes its rates from options.
    """
    losses, tolerance = losses_plan.take(fields)
    request = recorded_plan.take_request(model_name, fields)
    if losses and request:
        _refuse_in_a_rank()
        rounds = fields["rounds"]
        return losses_plan.run(request, losses, tolerance, compare, rounds, format_name)
    states = take_states(require_model(model_name) if model_name else recorded_plan.MODEL, fields)
    memory = states_plan.take_memory(fields, states)
    if states is not None and memory is not None:
        table = format_name == "table" and json_name != "-"
        return states_plan.run(
            states, memory, fields, result_file(json_name), force=force, table=table
        )
    _refuse_in_a_rank()
    where = LaunchTarget(**take_where(fields))
    file = result_file(json_name)
    if file is not None:
        check_writable(file, overwrite=force)
    asked = tuple(method.name for method in parse_for_plan(compare)) if compare else ()
    rounds = transport_table.parse(transports) if transports else []
    networks = as_if_network.parse_all(network)
    recorded = request.step() if request else None
    if request and recorded is None:
        return int(Exit.OK)
    if recorded is not None:
        where, check = recorded_plan.launch_target(recorded, where), "none"
    as_if_network.check(networks, several_hosts=bool(where.step) or len(where.named()) > 1)
    methods, suitable = defaults(where)
    names = asked or tuple(methods)
    if recorded is None:
        training = TrainSpec(model=model_name or "", methods=names, iters=1, **fields)
    else:
        training = recorded_plan.spec(recorded, names, fields["rounds"])
    job = PlanJob(
        engine="torch",
        program="busbw plan",
        argv=argv(),
        training=training,
        plan=PlanSpec(iters=iters, target=target, as_if=networks),
        recorded=recorded,
        limit_s=limit_s,
        launch_limit_s=launch_limit_s,
    )
    table = format_name == "table" and json_name != "-"

    def sink(first: bool) -> RunOutput:
        return PlanOutput(first=first) if table else RunOutput(RunRecord(), save_unasked=False)

    result = Planner(job, where, file, sink).run(
        rounds or transport_table.parse(",".join(suitable)), check
    )
    print_out(plan_text.footer(result, width()) if table else encoded(result).decode())
    keep(result, asked=history)
    if file is not None:
        save(encoded(result), file)  # raises; during the run a failure is only a warning
    refusal = plan_text.refusal(result)
    said = [] if table else filter(None, [refusal.strip(), *result.errors])
    for text in said:
        print_err(text)
    return int(Exit.UNKNOWN if refusal or result.errors else Exit.OK)


def _refuse_in_a_rank() -> None:
    if environment.detect(os.environ) is not None:
        raise UsageError(
            "busbw plan starts jobs, but this process is a rank of one",
            "run it outside mpirun, srun or torchrun, with --hosts",
        )
