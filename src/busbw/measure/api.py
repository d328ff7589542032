"""The Python API: `busbw.run` measures a collective and returns the result.

The command line uses it too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from busbw.core.collectives import collective as collective_row
from busbw.core.errors import UsageError, unknown
from busbw.core.options import LAUNCH_LIMIT_S, LIMIT_S
from busbw.core.result import Result
from busbw.core.sweep import OF_SIZES, Sampling, SweepSpec, check_spec, dtypes, redops
from busbw.engines.registry import AUTO
from busbw.engines.sim_parameters import parse_parameters
from busbw.launch.hosts import hosts_argument
from busbw.measure.job import SweepJob
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.start import run as start
from busbw.measure.target import LaunchTarget

if TYPE_CHECKING:
    from busbw.launch.slurm import JobStep


class Options(TypedDict, total=False):
    """Where and how to run, as the options of `busbw run`."""

    # The number over all hosts. The default is one for each GPU, or two on CPUs.
    ranks: int | None
    hosts: str | Sequence[str] | None  # "h1:8,h2:8", or a list of such entries
    hostfile: str | Path | None
    ifname: str  # network interface for MPI, PMIx and NCCL
    step: "JobStep | None"  # a job step of Slurm
    engine: str  # "auto", "nccl", "torch", "mpi" or "sim"
    nccl: str  # a release of NCCL, "2.32.3", or the path of a library
    wheels: Path | None  # folder of its wheels; None: the cache, or pip
    net: str  # network that NCCL must use: "busbw", "socket" or "ib"
    simulation: str  # parameters of the sim engine
    inject: str  # a fault to inject
    full_rows: bool  # whether to begin at the first size at which every rank has an element
    unset: tuple[str, ...]  # fields of the sweep for which CPUs have defaults of their own
    watch: bool  # whether rows have what the links of each host carried
    ideal: str  # expected busbw: "450GB/s"
    limit_s: float  # seconds without a completed operation until the run is stopped; 0: no limit
    launch_limit_s: float  # seconds until all ranks must have joined
    program: str  # the caller, recorded in the result
    argv: list[str]


def run(
    collective: str | SweepSpec, *, sink: Sink | None = None, **options: Unpack[Options]
) -> Result:
    """Measure a collective over all local GPUs, or over the given ranks or hosts, and return the
    result.

    `collective` is a name, for the sizes and timing of `busbw run`, or a SweepSpec. `sink` receives
    events and messages; without one messages are logged under the name `busbw`. In a process that
    an outer mpirun, srun or torchrun started, every rank calls this and only rank 0 gets rows.

    Raises UsageError for invalid arguments and NoMeasurement where no measurement is possible. In a
    job of several processes that have joined, an error is logged and ends the job on all ranks.
    """
    job, where = prepare(collective, **options)
    result = start(job, where, sink or Sink(RunRecord()))
    # ranks other than 0 have no result
    return result if isinstance(result, Result) else Result(spec=job.sweep)


def prepare(
    collective: str | SweepSpec, **options: Unpack[Options]
) -> tuple[SweepJob, LaunchTarget]:
    """The job that `run` would start, and where; raises as `run` does."""
    for name in options.keys() - Options.__annotations__.keys():
        names = {known: known for known in Options.__annotations__}
        raise unknown("option", name, names, also="; sizes and timing are fields of SweepSpec")
    if isinstance(collective, str):
        sampling = Sampling(precision=0.0)  # 0: the engine's default
        collective = SweepSpec(
            collective=collective_row(collective).name, step_factor=2, sampling=sampling
        )
        options.setdefault("unset", (*OF_SIZES, "max_time"))
    if options.get("watch") and collective.sampling is None:
        raise UsageError(
            "--watch with --timing classic: only precise timing reads counters between sizes",
            "leave out one of them",
        )
    check_spec(collective, strict=True)
    dtypes(collective)
    redops(collective)
    fields: dict[str, Any] = {
        "program": "busbw.run",
        "limit_s": LIMIT_S,
        "launch_limit_s": LAUNCH_LIMIT_S,
        "simulation": "",
        "nccl": "",
        "wheels": None,
        **options,
    }
    fields["hosts"] = hosts_argument(fields.get("hosts"))
    hostfile = fields.get("hostfile")
    fields["hostfile"] = Path(hostfile) if hostfile else None
    where_names = ("ranks", "hosts", "hostfile", "ifname", "step")
    where = LaunchTarget(**{name: fields.pop(name) for name in where_names if name in fields})
    simulation = parse_parameters(fields.pop("simulation"))
    wheels = fields.pop("wheels")
    if fields["nccl"] or wheels:
        from busbw.measure import nccl_library

        elsewhere = bool(where.hosts or where.hostfile or where.step)
        engine = fields.get("engine", AUTO)
        fields["nccl"] = nccl_library.choose(fields["nccl"], wheels, engine, elsewhere=elsewhere)
    else:
        fields["nccl"] = None
    return SweepJob(sweep=collective, simulation=simulation, **fields), where
