"""`busbw.predict`: how long a collective, or a recorded application's communication, takes on a
system.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, overload

from busbw.api.comparison import Run, runs
from busbw.api.systems import (
    AUTO,
    MAX_UPLINKS,
    LinkOptions,
    given_system,
    parse_allowed,
    sizes,
    this_system,
)
from busbw.core.alltoallv import Traffic
from busbw.core.collectives import Collective
from busbw.core.collectives import collective as collective_row
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import BusbwError, UsageError, unknown
from busbw.core.pattern import Pattern
from busbw.core.ranges import require_between
from busbw.core.result import Result
from busbw.core.sizes import counted, short_size
from busbw.measure import alltoallv_traffic
from busbw.model.buckets import Bucket
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import ALLTOALL, MeasuredCurves
from busbw.model.hardware import is_another_gpu
from busbw.model.measured_system import cpus_of, of_result, shape
from busbw.model.nccl.constants import FITTED, release
from busbw.model.overlap import parse_ratios
from busbw.model.patterns import PatternJob, predict_pattern
from busbw.model.predict import predict as predict_collective
from busbw.model.predict import without_rails
from busbw.model.reference.compared import evidence as of_own
from busbw.model.reference.curves import Reference, ReferenceCurve
from busbw.model.reference.results import curve_of
from busbw.model.spine import Spine, derived_uplinks
from busbw.model.systems import CPUS, MAX_HOSTS, System
from busbw.model.training_step import RecordedTraining
from busbw.model.types import PatternPrediction, Prediction
from busbw.pattern.replay.types import SCALES
from busbw.reference.own_table import known_curves
from busbw.reference.place import own_file
from busbw.stats.compare import Named


class SystemOptions(TypedDict, total=False):
    """The system, and how NCCL runs on it, as the options of `busbw predict`."""

    system: str  # "h100x8", "p5.48xlarge"; the default is this host
    topo: str | Path  # a host's topology as NCCL_TOPO_DUMP_FILE writes it
    nics: str  # "8x400G"
    fabric: str  # network of the hosts: "efav2", "75us"
    cpu: str | None
    gpus: int | None  # used on each host; the default is all
    nccl: str  # release whose choice is predicted
    algo: str  # as NCCL_ALGO
    proto: str  # as NCCL_PROTO
    sharp: bool  # the network's switches reduce
    ctas: int | None  # most channels of NCCL
    calibrate: Run | Sequence[Run]  # results of such a system, to correct the model by
    oversubscription: float  # of the network between hosts
    hosts_per_leaf: int | None
    ecmp: int | None  # uplinks of a leaf switch, to which flows are hashed; 0: by oversubscription
    rails_lost: int  # NICs of each host that are out of use
    reference: str | Path | None  # file of your own runs; None: published runs alone


class CollectiveOptions(SystemOptions, total=False):
    """What is predicted of a collective."""

    nodes: int | Sequence[int]  # numbers of hosts
    min_bytes: int | str  # "1K"
    max_bytes: int | str
    step_factor: int
    datatype: str
    counts: str  # alltoallv: bytes of each pair of ranks


class PatternOptions(SystemOptions, total=False):
    """What is predicted of a pattern."""

    nodes: int  # the default is as many as the pattern fills
    scale: str  # rule for a pattern on another number of ranks
    together: Sequence[str]  # measured slow-down: "all_reduce+all_gather=1.4"


OVERSUBSCRIPTIONS = (1.0, 64.0)
RANGES: Mapping[str, tuple[int, int]] = {
    "gpus": (1, MAX_HOSTS),
    "ctas": (1, 64),
    "hosts_per_leaf": (1, MAX_HOSTS),
    "ecmp": (0, MAX_UPLINKS),
    "rails_lost": (0, MAX_HOSTS),
    "nodes": (1, MAX_HOSTS),
    "step_factor": (2, 1 << 60),
}
CHOICES = {"cpu": CPUS, "scale": SCALES}
BETWEEN_HOSTS = ("nics", "fabric")  # options without effect on one host
UNSET = ("reference",)  # options of which None is a value


@overload
def predict(
    collective: str | None = None, *, pattern: None = None, **options: Unpack[CollectiveOptions]
) -> Prediction: ...


@overload
def predict(
    *, pattern: str | Path | Pattern, **options: Unpack[PatternOptions]
) -> PatternPrediction: ...


def predict(
    collective: str | None = None, *, pattern: str | Path | Pattern | None = None, **options: Any
) -> Prediction | PatternPrediction:
    """Predict the time and busbw of a collective by size and number of hosts, all_reduce by
    default, or what an application's communication takes: a Pattern, or a file that `busbw.load`
    reads as one.

    The options are those of `busbw predict`: SystemOptions with CollectiveOptions or
    PatternOptions. UsageError for what the model does not know; NoMeasurement if no system is given
    and this host has no GPU.
    """
    if pattern is not None and collective is not None:
        raise UsageError(
            f"{collective}: a pattern has its own collectives",
            f"leave out '{collective}', or pattern",
        )
    given = {name: options[name] for name in options if name in UNSET or options[name] is not None}
    _require_known(given, PatternOptions if pattern is not None else CollectiveOptions)
    for name, value in given.items():
        _require_in_range(name, value, several=pattern is None)
    results = runs("calibrate", given["calibrate"]) if given.get("calibrate") else []
    if pattern is None:
        return of_collective(collective or "all_reduce", cast(CollectiveOptions, given), results)
    return of_pattern(pattern, cast(PatternOptions, given), results)


def _require_known(names: Iterable[str], options: type) -> None:
    """UsageError for a name that is none of these options."""
    known = options.__annotations__
    for name in names:
        if name in known:
            continue
        if name in CollectiveOptions.__annotations__ or name in PatternOptions.__annotations__:
            subject = "a pattern" if options is CollectiveOptions else "a collective"
            raise UsageError(f"{name}: it is of {subject}", f"leave out {name}")
        raise unknown("option", name, dict(zip(known, known, strict=True)))


def _require_in_range(name: str, value: object, *, several: bool) -> None:
    """UsageError for a value out of the range of its option; `several` numbers of hosts may be
    given.
    """
    numbers = [value]
    if name == "nodes" and several and isinstance(value, Sequence) and value:
        numbers = list(value)
    for number in numbers:
        if name in RANGES:
            require_between(name, number, *RANGES[name])
        elif name == "oversubscription":
            require_between(name, number, *OVERSUBSCRIPTIONS)
    if name in CHOICES and value not in CHOICES[name]:
        known = CHOICES[name]
        raise unknown(name, str(value), dict(zip(known, known, strict=True)))


def of_collective(name: str, options: CollectiveOptions, results: Sequence[Named]) -> Prediction:
    """The prediction of a collective, calibrated by results, each with the name of its file."""
    row = collective_row(name)
    nodes = options.get("nodes", 1)
    hosts = [nodes] if isinstance(nodes, int) else sorted(set(nodes))
    setting, source = _setting(row, options)
    setting = replace(setting, dtype=dtype_row(options.get("datatype", "float")).name)
    evidence = _evidence(setting, options, results)
    per_host = options.get("gpus") or setting.system.gpus
    smallest, largest = options.get("min_bytes", "1K"), options.get("max_bytes", "16G")
    bytes_of = sizes(str(smallest), str(largest), options.get("step_factor", 16))
    counts = options.get("counts", "")
    if counts:
        moved = alltoallv_traffic.of_counts(row.name, counts, per_host)
        bytes_of = _sizes_with_traffic(bytes_of, counts, lambda size: moved(max(hosts), size))
        setting = replace(setting, traffic=moved)
    elif row.uneven:
        setting = replace(setting, traffic=alltoallv_traffic.of_nccl_tests(per_host))
    lost = options.get("rails_lost", 0)
    if results:
        _require_use(evidence.calibration, row, hosts, per_host, bytes_of)
    prediction = predict_collective(setting, row, hosts, per_host, bytes_of, source, evidence, lost)
    unused = [f"--{name}" for name in BETWEEN_HOSTS if options.get(name)]
    if unused and max(hosts) == 1:
        prediction.notes.append(
            f"{', '.join(unused)}: without effect on one host; give --nodes, like --nodes 2"
        )
    return prediction


def of_pattern(
    given: str | Path | Pattern, options: PatternOptions, results: Sequence[Named]
) -> PatternPrediction:
    """The prediction of a pattern, or of the file that holds it, calibrated as `of_collective`."""
    _refuse_settings_of_collective(options.get("algo", ""), options.get("proto", ""))
    ratios = parse_ratios(options.get("together", ()))
    nodes, gpus = options.get("nodes") or 0, options.get("gpus") or 0
    job = PatternJob(nodes, gpus, options.get("scale", SCALES[0]))
    setting, source = _setting(collective_row("all_reduce"), options)
    evidence = _evidence(setting, options, results)
    lost = options.get("rails_lost", 0)
    setting = replace(setting, system=without_rails(setting.system, lost))
    name = "the pattern"
    if isinstance(given, str | Path):
        from busbw.pattern.registry import load  # it imports the readers of all patterns

        name = str(given)
        given = load([name])
    training = _training(given, name)
    return predict_pattern(given, setting, name, source, evidence, job, ratios, training)


def _setting(row: Collective, options: SystemOptions) -> tuple[EstimateInputs, str]:
    """What an estimate depends on, and the source of the system."""
    links = LinkOptions(options.get("nics", ""), options.get("fabric", ""), options.get("cpu"))
    described = given_system(options.get("system", ""), str(options.get("topo", "")), links)
    hardware, source = described or this_system(links)
    spine = _spine(
        options.get("oversubscription", 1.0), options.get("hosts_per_leaf"), options.get("ecmp")
    )
    setting = EstimateInputs(
        replace(hardware, collnet=options.get("sharp", False)),
        release(options.get("nccl", FITTED)),
        parse_allowed(options.get("algo", ""), options.get("proto", ""), row.name),
        spine,
        ctas=options.get("ctas") or 0,
    )
    return setting, source


def _evidence(
    setting: EstimateInputs, options: SystemOptions, results: Sequence[Named]
) -> MeasuredCurves:
    """The curves in force: the published ones, the user's own, and those of results."""
    own = options.get("reference", own_file(os.environ))
    known = known_curves(Path(own) if own else None)
    return _calibrated(results, setting.system, known) if results else of_own(setting, known)


def _training(pattern: Pattern, source: str) -> RecordedTraining | None:
    """The step of a pattern that is a DistributedDataParallel training's; None if it is not, or if
    the record does not tell what a step takes and waits.
    """
    from busbw.pattern.training.finder import recorded_step  # only patterns need it

    try:
        step = recorded_step(pattern, source)
    except BusbwError:
        return None
    if step.step_s is None or step.waited_s is None:
        return None
    buckets = [Bucket(bucket.nbytes, bucket.ready_s) for bucket in step.buckets]
    dtypes = [bucket.dtype for bucket in step.buckets]
    return RecordedTraining(step.ranks, buckets, dtypes, step.step_s, step.waited_s)


def _spine(oversubscription: float, hosts_per_leaf: int | None, uplinks: int | None) -> Spine:
    """The network above the leaf switches; UsageError for uplinks of a leaf of unknown size."""
    if uplinks is None:
        return Spine(oversubscription, hosts_per_leaf or 0)
    if not hosts_per_leaf:
        raise UsageError(
            f"--ecmp {uplinks or AUTO}: how many hosts share a leaf switch is unknown",
            "add --hosts-per-leaf, like --hosts-per-leaf 32",
        )
    derived = derived_uplinks(hosts_per_leaf, oversubscription)
    return Spine(oversubscription, hosts_per_leaf, uplinks or derived)


def _sizes_with_traffic(
    sizes_bytes: Sequence[int], counts: str, traffic_of: Callable[[int], Traffic | None]
) -> list[int]:
    """The sizes of which a byte crosses a link; UsageError if there is none."""
    moving = [size for size in sizes_bytes if traffic_of(size) is not None]
    if not moving:
        raise UsageError(
            f"--counts {counts}: no byte of {sizes_bytes[-1]} crosses a link",
            "give a larger -e, or other counts",
        )
    return moving


def _calibrated(results: Sequence[Named], system: System, known: Reference) -> MeasuredCurves:
    """The known curves and those of all results. The results' systems are what they recorded,
    with the NICs of `system` if they recorded none.
    """
    measured = (_curve(file, result, system) for file, result in results)
    curves = [curve for curve in measured if curve is not None]
    if not curves:
        file = results[0][0]
        raise UsageError(f"--calibrate {file}: no size in it has a time", f"busbw show {file}")
    return MeasuredCurves(known, tuple(curves))


def _curve(file: str, result: Result, system: System) -> ReferenceCurve | None:
    """The curve of a result; UsageError for one of CPUs or of other GPUs."""
    name = result.world.devices[0].name if result.world.devices else ""
    cpus = cpus_of(result)
    if cpus or is_another_gpu(name, system.gpu):
        of = f"its ranks ran on CPUs ({cpus})" if cpus else f"it is of {name}"
        raise UsageError(
            f"--calibrate {file}: {of}, and the predicted system has {system.gpu}",
            "give a run of such a system, or leave out --calibrate",
        )
    recorded = of_result(result)
    if isinstance(recorded, str):  # why there is none
        recorded = system
    if shape(result)[0] > 1 and not recorded.nics:
        recorded = replace(recorded, nics=system.nics, nic=system.nic, network=system.network)
        if not recorded.nics:
            raise UsageError(
                f"--calibrate {file}: the NICs of its hosts are unknown",
                "give them, like --nics 8x400G",
            )
    return curve_of(result, recorded, shape(result), "calibration", file)


def _require_use(
    curves: Sequence[ReferenceCurve],
    row: Collective,
    hosts: Sequence[int],
    per_host: int,
    sizes_bytes: Sequence[int],
) -> None:
    """UsageError for a result that corrects nothing in a prediction of this collective."""
    # An uneven alltoall is predicted by even ones too.
    collectives = (row.name, ALLTOALL) if row.uneven else (row.name,)
    for curve in curves:
        reason = hint = ""
        if curve.collective not in collectives:
            reason, hint = f"it is of {curve.collective}", f"predict {curve.collective}"
        elif curve.per_host != per_host:
            reason = f"its hosts have {counted(curve.per_host, 'rank')}, those predicted {per_host}"
            hint = f"add --gpus {curve.per_host}, or measure with {per_host} on each host"
        elif curve.hosts not in hosts and (curve.hosts == 1 or max(hosts) == 1):
            reason = f"it is of {counted(curve.hosts, 'host')}, which are not predicted"
            hint = f"add --nodes {curve.hosts}"
        elif curve.hosts == 1 and not any(map(curve.time_s, sizes_bytes)):
            reason = "it has none of the predicted sizes"
            hint = f"add -b {short_size(curve.sizes[0])} -e {short_size(curve.sizes[-1])}"
        if reason:
            raise UsageError(f"--calibrate {curve.run}: {reason}", hint)


def _refuse_settings_of_collective(algo: str, proto: str) -> None:
    """UsageError for settings of one collective: a pattern has several."""
    for name, text in (("--algo", algo), ("--proto", proto)):
        if ":" in text:
            example = "Ring" if name == "--algo" else "Simple"
            raise UsageError(
                f"{name} {text}: it is of one collective, and a pattern has several",
                f"name them for all collectives, like {name} {example}",
            )
