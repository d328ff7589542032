"""`busbw plan`: which way to exchange gradients hides the network, and loses least."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from busbw.cli import training_options
from busbw.cli.output import Output
from busbw.cli.slurm_options import slurm_options, take_step
from busbw.cli.streams import answer, talk
from busbw.cli.terminal import width
from busbw.cli.words import Share, filled
from busbw.core import transports
from busbw.core.errors import BusbwError, UsageError
from busbw.core.exits import Exit
from busbw.core.planning import AS_IS, Exchange, PlanSpec
from busbw.core.result import AnyResult, PlanResult, TrainResult
from busbw.core.training import TrainSpec
from busbw.core.transports import Transport
from busbw.engines.registry import torch_gpus
from busbw.host import net_plugin
from busbw.launch import environment
from busbw.launch.hosts import parse_hosts, read_hostfile
from busbw.measure.events import Event, Exchanged, Started, Surveyed
from busbw.measure.job import PlanJob, TrainJob
from busbw.measure.record import Record, check_writable, encoded, save
from busbw.session.start import run
from busbw.session.where import Where
from busbw.views import planning

CHECKS = ("best", "all", "none")


class PlanOutput(Output):
    """Takes one transport's job; `aloud` prints the plan as it grows, `first` also its header."""

    def __init__(self, *, aloud: bool, first: bool) -> None:
        super().__init__(Record(), save_unasked=False)
        self.aloud, self.first = aloud, first

    def show(self, event: Event, result: AnyResult) -> None:
        """Header, then a line for each exchange."""
        if not self.aloud or not isinstance(result, PlanResult):
            return
        if isinstance(event, Started) and self.first:
            answer(planning.header(result, width()))
        elif isinstance(event, Surveyed) and self.first:
            answer(planning.surveyed(result, event.plan, width()))
        elif isinstance(event, Exchanged) and result.plan:
            answer(planning.row(result, result.plan, event.exchange, width()))


@dataclass(frozen=True, slots=True)
class Planner:
    """One call: what trains, where, and how the answer is given."""

    spec: TrainSpec
    plan: PlanSpec
    where: Where
    file: Path | None
    aloud: bool
    limit_s: float
    start_limit_s: float

    def run(self, ways: Sequence[Transport], check: str) -> PlanResult:
        """Every transport in turn, then the trainings that check it; what was measured is kept however it ends."""
        whole: PlanResult | None = None
        for way in ways:
            output = PlanOutput(aloud=self.aloud, first=whole is None)
            plan = msgspec.structs.replace(self.plan, transport=way.name)
            try:
                with self._kept(output, whole):
                    self._run(way, PlanJob(training=self.spec, plan=plan, **self._common(way)), output)
            except BusbwError as error:
                if whole is None:
                    raise
                talk(f"note: {way.name} could not be measured: {error.message}")
            whole = whole or _plan_of(output)
        assert whole is not None
        self._check(whole, ways, check)
        return whole

    @contextlib.contextmanager
    def _kept(self, output: PlanOutput, whole: PlanResult | None) -> Iterator[None]:
        """The exchanges of one transport are added to the others, and to the file, however it ends."""
        try:
            yield
        finally:
            made = _plan_of(output)
            if whole is not None and whole.plan and made and made.plan:
                whole.plan.exchanges += made.plan.exchanges
            self._save(whole or made)

    def _save(self, result: PlanResult | None) -> None:
        """A file that cannot be written stops nothing: everything is also on stdout."""
        try:
            if self.file is not None and result and result.plan:
                save(encoded(result), self.file)
        except BusbwError as error:
            talk(f"warning: {error.message}; measuring goes on")

    def _common(self, way: Transport) -> dict[str, Any]:
        argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
        limits = {"limit_s": self.limit_s, "start_limit_s": self.start_limit_s}
        return {"engine": "torch", "program": "busbw plan", "argv": argv, "net": way.net, **limits}

    def _run(self, way: Transport, job: PlanJob | TrainJob, output: Output) -> None:
        with _set(way.variables):
            run(job, self.where, output)

    def _check(self, whole: PlanResult, ways: Sequence[Transport], check: str) -> None:
        """Trainings with everything, or with what is recommended: where it falls short of what was predicted, with what is then."""
        plan = whole.plan
        if plan is None or check == "none":
            return
        if check == "all":
            for way in ways:
                self._trained(way, [one for one in plan.exchanges if one.transport == way.name])
        else:
            while (chosen := plan.recommended()) and chosen.checked_s is None:
                if not self._trained(transports.BY_NAME[chosen.transport], [chosen]):
                    break
                self._save(whole)
        self._save(whole)

    def _trained(self, way: Transport, wanted: Sequence[Exchange]) -> bool:
        """Whether all of it was run."""
        output = Output(Record(), save_unasked=False)
        spec = msgspec.structs.replace(self.spec, methods=tuple(one.method for one in wanted))
        try:
            if wanted:
                self._run(way, TrainJob(training=spec, **self._common(way)), output)
        except BusbwError as error:  # the plan is valid without it
            talk(f"note: the training over {way.name} did not end: {error.message}")
        finally:
            result = output.record.result
            for one in wanted:
                one.checked_s = result.training.step_s(one.method) if isinstance(result, TrainResult) else None
        return all(one.checked_s for one in wanted)


def _plan_of(output: Output) -> PlanResult | None:
    result = output.record.result
    return result if isinstance(result, PlanResult) else None


@contextlib.contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    """The environment with these; what the user has set stays."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _methods(*, rows: bool, host: bool) -> list[str]:
    """What is weighed where nobody says: all in two dimensions where hosts have several ranks each; large ones from the host too."""
    from busbw.accel.methods import CODECS

    own = "2d+" if rows else ""
    made = ["none", *(["2d"] if rows else []), f"{own}bf16"]
    for codec in CODECS:
        for variant in codec.plan_variants:
            if rows and "last=" in variant:
                continue
            name = f"{'' if codec.needs_matrices else own}{codec.name}{variant}"
            made += [name, f"{name}+host"] if host and codec.plan_with_host and not variant else [name]
    return made


def _ways(*, gpus: bool, rows: bool, ours: bool) -> list[str]:
    """Transports that can differ here: one between CPUs, or inside a host."""
    return [AS_IS, "sockets", *(["tree"] if rows else []), *(["busbw"] if ours else [])] if gpus else [AS_IS]


def _ours() -> bool:
    """Whether busbw-native is here."""
    with contextlib.suppress(BusbwError):
        net_plugin.find()
        return True
    return False


@click.command("plan", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model_name", metavar="MODEL")
@training_options.what
@click.option(
    "--compare",
    default="",
    callback=filled,
    help="methods to compare, as in busbw train  [default: all that suit the job]",
)
@click.option(
    "--try", "tried", default="", callback=filled, help=f"transports: {', '.join(transports.BY_NAME)}  [default: all that can differ]"
)
@click.option("--target", type=Share(0, 1, closed=True), default="95%", show_default=True, help="share of a rank's own rate to reach")
@click.option("--warmup", type=click.IntRange(1), default=5, show_default=True, help="steps before each measurement that do not count")
@click.option(
    "--steps", type=training_options.COUNT, default=20, show_default=True, help="steps alone, without exchange, and of each check"
)
@click.option("--replays", type=training_options.COUNT, default=5, show_default=True, help="times that each exchange is timed")
@click.option(
    "--check", type=click.Choice(CHECKS), default="best", show_default=True, help="train with it, and hold that against the prediction"
)
@training_options.where
@click.option("--format", "format_name", type=click.Choice(("table", "json")), default="table", show_default=True, help="on stdout")
@click.option("--json", "json_name", default="", callback=filled, help="keep the result in this file; - = stdout at the end")
@click.option("--force", is_flag=True, help="let --json replace an existing file")
@slurm_options
def command(
    model_name: str, compare: str, tried: str, target: float, steps: int, replays: int, check: str, ranks: int | None, hosts: str,
    hostfile: Path | None, ifname: str, format_name: str, json_name: str, force: bool, launch_limit: float, limit: float, **fields: Any,
) -> int:  # fmt: skip
    """Say how the gradients of MODEL should be exchanged here: the way that hides the network and loses least.

    Measures a step of each rank alone, when DDP's buckets are ready in it, and the exchange of each bucket by itself with every method
    and transport; predicts the step from them, and trains with what it recommends: where that falls short, with the next. Nothing is
    changed.
    """
    from busbw.train.methods import parse_all
    from busbw.train.names import known

    if environment.detect(os.environ) is not None:
        raise UsageError(
            "busbw plan starts jobs, and this process is a rank of one", "call it outside mpirun, srun or torchrun, with --hosts"
        )
    step = take_step(fields, ranks, bool(hosts or hostfile))
    places = parse_hosts(hosts) if hosts else read_hostfile(str(hostfile)) if hostfile else ()
    rows = len(places) > 1 and all((place.slots or 1) > 1 for place in places)
    gpus = bool(places or step) and bool(torch_gpus())
    ours = gpus and _ours()
    methods = tuple(method.name for method in parse_all(compare or ",".join(_methods(rows=rows, host=ours))))
    spec = TrainSpec(model=known(model_name), methods=methods, iters=1, batches=steps, **fields)
    ways = transports.parse(tried or ",".join(_ways(gpus=gpus, rows=rows, ours=ours)))
    json_file = Path(json_name) if json_name not in ("", "-") else None
    format_name = "json" if json_name == "-" else format_name
    if json_file is not None:
        check_writable(json_file, overwrite=force)
    where = Where(ranks=ranks, hosts=hosts, hostfile=hostfile, ifname=ifname, step=step)
    plan = PlanSpec(replays=replays, target=target)
    whole = Planner(spec, plan, where, json_file, format_name == "table", limit, launch_limit).run(ways, check)
    answer(planning.footer(whole, width()) if format_name == "table" else encoded(whole).decode())
    if json_file is not None:
        save(encoded(whole), json_file)  # once more: what could not be written before is an error now
    return int(Exit.OK)
