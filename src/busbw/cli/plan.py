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
from busbw.cli.session import Where, run_job
from busbw.cli.slurm_options import slurm_options, take_step
from busbw.cli.streams import answer, talk
from busbw.cli.words import Share, filled
from busbw.core import transports
from busbw.core.errors import BusbwError, UsageError
from busbw.core.exits import Exit
from busbw.core.planning import AS_IS, Exchange, PlanSpec
from busbw.core.result import Result
from busbw.core.sweep import SweepSpec
from busbw.core.training import TrainSpec
from busbw.core.transports import Transport
from busbw.engines.registry import torch_gpus
from busbw.host import net_plugin
from busbw.launch import environment
from busbw.launch.hosts import parse_hosts, read_hostfile
from busbw.measure.events import Event, Exchanged, Started, Surveyed
from busbw.measure.job import Job
from busbw.measure.record import Record, check_writable, encoded, save
from busbw.views import planning
from busbw.views.registry import View

SILENT = View("none", "", lambda _: "", lambda *_: "", lambda _: "", streams=False)
CHECKS = ("best", "all", "none")


class Told(Output):
    """Takes one job's events; `aloud` prints what they tell of the plan."""

    def __init__(self, *, aloud: bool, first: bool) -> None:
        super().__init__(Record(SweepSpec(collective="all_reduce"), None), SILENT, save_unasked=False)
        self.aloud, self.first = aloud, first

    def take(self, event: Event) -> None:
        """See Output.take."""
        super().take(event)
        result = self.record.result
        if not self.aloud or not (self.first or isinstance(event, Exchanged)):
            return
        if isinstance(event, Started):
            answer(planning.header(result))
        elif isinstance(event, Surveyed):
            answer(planning.surveyed(result, event.plan))
        elif isinstance(event, Exchanged) and result.plan:
            answer(planning.row(result, result.plan, event.exchange))


@dataclass(frozen=True, slots=True)
class Planner:
    """One call: what trains, where, and how the answer is given."""

    spec: TrainSpec
    plan: PlanSpec
    where: Where
    file: Path | None
    aloud: bool

    def run(self, ways: Sequence[Transport], check: str) -> Result:
        """Every transport in turn, then the trainings that check it; what is there is kept however it ends."""
        whole: Result | None = None
        for way in ways:
            told = Told(aloud=self.aloud, first=whole is None)
            try:
                with self._kept(told, whole):
                    self._job(way, told, msgspec.structs.replace(self.plan, transport=way.name))
            except BusbwError as error:
                if whole is None:
                    raise
                talk(f"note: {way.name} could not be measured: {error.message}")
            whole = whole or told.record.result
        assert whole is not None
        self._check(whole, ways, check)
        return whole

    @contextlib.contextmanager
    def _kept(self, told: Told, whole: Result | None) -> Iterator[None]:
        """What one transport has brought is added to the rest, and to the file, however it ends."""
        try:
            yield
        finally:
            made = told.record.result
            if whole is not None and whole.plan and made.plan:
                whole.plan.exchanges += made.plan.exchanges
            self._save(whole or made)

    def _save(self, result: Result) -> None:
        """A file that cannot be written stops nothing: all of it stands on stdout."""
        try:
            if self.file is not None and result.plan:
                save(encoded(result), self.file)
        except BusbwError as error:
            talk(f"warning: {error.message}; measuring goes on")

    def _job(self, way: Transport, told: Told, plan: PlanSpec | None, methods: tuple[str, ...] = ()) -> None:
        training = msgspec.structs.replace(self.spec, methods=methods) if methods else self.spec
        argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
        sweep = SweepSpec(collective="all_reduce")
        job = Job(sweep=sweep, engine="torch", program="busbw plan", argv=argv, net=way.net, training=training, plan=plan)
        with _set(way.variables):
            code = run_job(job, self.where, told)
        if code != Exit.OK:
            raise _Broken(code)

    def _check(self, whole: Result, ways: Sequence[Transport], check: str) -> None:
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
        told = Told(aloud=False, first=False)
        try:
            if wanted:
                self._job(way, told, None, tuple(one.method for one in wanted))
        except BusbwError as error:  # the plan stands without it
            talk(f"note: the training over {way.name} did not end: {error.message}")
        finally:
            training = told.record.result.training
            for one in wanted:
                one.checked_s = training.step_s(one.method) if training else None
        return all(one.checked_s for one in wanted)


class _Broken(Exception):
    """A job was broken off, which has been told; its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


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
@slurm_options
def command(
    model_name: str, compare: str, tried: str, target: float, steps: int, replays: int, check: str, ranks: int | None, hosts: str,
    hostfile: Path | None, ifname: str, format_name: str, json_name: str, launch_limit: float, limit: float, **fields: Any,
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
        check_writable(json_file)
    where = Where(ranks, hosts, hostfile, ifname, "torch", "", False, launch_limit, step, limit)
    planner = Planner(spec, PlanSpec(replays=replays, target=target), where, json_file, format_name == "table")
    try:
        whole = planner.run(ways, check)
    except _Broken as broken:
        return broken.code
    answer(planning.footer(whole) if format_name == "table" else encoded(whole).decode())
    if json_file is not None:
        save(encoded(whole), json_file)  # once more: what could not be written before is an error now
    return int(Exit.OK)
