"""Makes the table of reference curves, src/busbw/model/reference/table.json, from data files.

`python tools/make_reference.py ONE_HOST.csv SEVERAL_HOSTS.csv LOGS`

ONE_HOST.csv has the columns gpu, nccl, collective, dtype, gpus, bytes, us. SEVERAL_HOSTS.csv has
table, source, system, nodes, ranks, nics, collective, nccl, bytes, measured (busbw in GB/s),
algo_ran, note. LOGS is a folder with the logs of nccl-tests that PUBLISHED_LOGS names, with what
they ran on. Rows are grouped into curves, times are rounded to four digits. Results of this
project's own benchmarks, OWN below, are added from their files.
"""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.collectives import BY_NAME
from busbw.core.result import Result
from busbw.model.hardware import gpu_word
from busbw.model.measured_system import of_result, shape
from busbw.model.reference.curves import TABLE, CurveSource, ReferenceCurve, ReferenceTable
from busbw.model.reference.expected import LATENCY_BYTES
from busbw.model.reference.results import curve_of, nics_text
from busbw.model.systems import System, parse_system, with_nics
from busbw.report import read

ROOT = Path(__file__).resolve().parents[1]
AICONFIGURATOR, AIC_REPOSITORY = "aiconfigurator", "ai-dynamo/aiconfigurator"
AIC_SOURCE = f"{AIC_REPOSITORY}, measured with nccl-tests"
GPU_WORDS = {"a100_sxm": "a100", "h100_sxm": "h100", "b200_sxm": "b200"}
# Notes of the data that name a network.
FABRICS = (
    ("EFA v1", "efav1"),
    ("EFA v2", "efav2"),
    ("EFA v4", "efav4"),
    ("TCPXO", "tcpxo"),
    ("TCPX", "tcpx"),
    ("RoCE", "roce"),
    ("Slingshot", "slingshot"),
)
# Folders of this project's records, whose results are curves. They were measured on virtual
# machines, where a launch takes 12 us and 6 elsewhere, so small sizes of collectives that others
# measured are left out.
OWN = ("benchmarks/reference_4xh200_202611",)
SMALL_BYTES = 1 << 20
# Names that SEVERAL_HOSTS.csv and its logs have for sources of reference_sources.csv.
NAMES = {
    "aws-samples/awsome-distributed-training micro-benchmarks/nccl-tests/README.md": (
        "AWS, awsome-distributed-training, nccl-tests"
    ),
    "coreweave/nccl-tests README.md": "CoreWeave, nccl-tests",
    "dstackai/dstack examples/misc/a3mega-clusters/README": "dstack, A3 Mega clusters",
    "GKE A3 High test plan": "Google, Cluster Toolkit, A3 High test plan of several nodes",
    "esaaren/verl-on-gke README": "esaaren, verl on GKE",
    "GKE A4 readme": "yangwhale, DeepEP and NCCL on GKE's A4",
    "AMP/Vultr B200 POC summary.md": "AMP and Vultr, test of a B200 cluster",
    "Red Hat OpenShift H200 BlueField-3 doc": "sdambo, Spectrum-X on OpenShift, H200",
    "NREL Kestrel GPU benchmark": "NREL, ESIFHPC4, GPU collectives on Kestrel",
    "stas00/ml-engineering network/README.md, todo.md": (
        "Stas Bekman, Machine Learning Engineering, network"
    ),
    "Azure/ai-infrastructure-on-azure skills/slurm/sku_performance_baseline/SKILL.md": (
        "Azure, AI infrastructure on Azure, baselines"
    ),
    "Azure/AI-benchmarking-guide Azure_Results": "Azure, AI Benchmarking Guide",
}
LICENSES = {"aiconfigurator": "Apache-2.0"}


@dataclass(frozen=True)
class Log:
    """A published log, and what it does not say: its run's name, system, hosts and collective."""

    file: str
    run: str
    system: str
    hosts: int
    collective: str
    source: str


PUBLISHED_LOGS = (
    Log(
        "coreweave_nccl-tests__README_md.4.log",
        "cw_gb200_20racks",
        "gb200nvl72",
        20,
        "all_reduce",
        "coreweave/nccl-tests README.md",
    ),
)
_LOOKUP = re.compile(r"\s*\([^()]*\bid [0-9]+\)")


def main(one_host: str, several_hosts: str, logs: str) -> None:
    """Write the table, and print how many curves and points it has."""
    measured_by = _source(AIC_SOURCE)
    sources = {measured_by.key: measured_by}
    curves = [*_one_host(Path(one_host)), *_one_host(Path(__file__).with_name("one_host.csv"))]
    curves += _several_hosts(Path(several_hosts), sources)
    curves += _public(Path(__file__).with_name("public_figures.csv"), sources)
    curves += [_of_log(Path(logs), log, sources) for log in PUBLISHED_LOGS]
    curves += _own(sources, curves)
    curves = [curve for curve in curves if _is_fit(curve)]
    sources = {key: row for key, row in sources.items() if any(c.source == key for c in curves)}
    table = ReferenceTable(sources=list(sources.values()), curves=curves)
    target = ROOT / "src" / "busbw" / "model" / "reference" / TABLE
    target.write_bytes(_one_curve_a_line(table))
    points = sum(len(curve.sizes) for curve in curves)
    print(f"{target.name}: {len(curves)} curves, {points} points, {target.stat().st_size} bytes")


def _one_host(path: Path) -> list[ReferenceCurve]:
    times: dict[tuple[str, ...], list[tuple[int, float]]] = defaultdict(list)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            key = (row["gpu"], row["nccl"], row["collective"], row["dtype"], row["gpus"])
            times[key].append((int(row["bytes"]), float(row["us"])))
    curves = []
    for (gpu, nccl, collective, dtype, gpus), points in sorted(times.items()):
        word = GPU_WORDS.get(gpu, gpu)
        points.sort()
        curve = ReferenceCurve(
            source=AICONFIGURATOR,
            run=f"aiconfigurator {word} NCCL {nccl}",
            gpu=word,
            per_host=int(gpus),
            collective=collective,
            dtype=dtype,
            nccl=nccl,
            sizes=tuple(size for size, _ in points),
            times_us=tuple(_rounded(time_us) for _, time_us in points),
        )
        curves.append(curve)
    return curves


def _several_hosts(path: Path, sources: dict[str, CurveSource]) -> list[ReferenceCurve]:
    tables: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            tables[row["table"].removeprefix("SEEN_")].append(row)
    curves = []
    for name, rows in tables.items():
        source = _source(rows[0]["source"])
        sources.setdefault(source.key, source)
        curves.append(_published_curve(name, rows, source.key))
    return curves


def _published_curve(name: str, rows: list[dict[str, str]], source: str) -> ReferenceCurve:
    first = rows[0]
    hosts, ranks = int(first["nodes"]), int(first["ranks"])
    factor = float(BY_NAME[first["collective"]].bus_factor(ranks))
    points = sorted((int(row["bytes"]), float(row["measured"])) for row in rows)
    return ReferenceCurve(
        source=source,
        run=name,
        gpu=re.split("x|nvl", first["system"])[0],
        per_host=ranks // hosts,
        hosts=hosts,
        nics=_nics(first) if hosts > 1 else "",
        fabric=_fabric(name, first["note"]),
        collective=first["collective"],
        nccl=first["nccl"],
        algorithm=first["algo_ran"].rstrip("?"),
        note=_LOOKUP.sub("", first["note"]),
        sizes=tuple(size for size, _ in points),
        times_us=tuple(_rounded(size * factor / gb_s / 1e3) for size, gb_s in points),
    )


def _fabric(run: str, note: str) -> str:
    """The network that a note names; p5en is an instance of AWS."""
    if run.startswith("p5en"):
        return "efav3"
    return next((fabric for word, fabric in FABRICS if word in note), "")


def _nics(row: dict[str, str]) -> str:
    """The NICs of a host: as stated, else those that such hosts usually have."""
    system = parse_system(row["system"])
    return row["nics"] or nics_text(system)


def _source(text: str) -> CurveSource:
    """The source of a table, by the name that its data has for it."""
    name = re.sub(r" \(EKS\)$", "", _LOOKUP.sub("", text).strip())
    issue = re.match(r"NVIDIA/[\w-]+ issue \d+", name)
    name = issue[0] if issue else NAMES.get(name, name)
    row = next(
        row
        for row in _rows(Path(__file__).with_name("reference_sources.csv"))
        if row["source"] == name
    )
    key = (
        AICONFIGURATOR
        if name.startswith(AIC_REPOSITORY)
        else re.sub(r"[^a-z0-9]+", "-", row["title"].lower()).strip("-")
    )
    del row["source"]
    return CurveSource(key=key, license=LICENSES.get(key, ""), **row)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def _is_fit(curve: ReferenceCurve) -> bool:
    """Whether a curve is a reference: not of a run that left_out.csv names."""
    for row in _rows(Path(__file__).with_name("left_out.csv")):
        gpus = row["gpus_per_host"]
        if row["run"] == curve.run and gpus in ("", str(curve.per_host)):
            return False
    return True


def _public(path: Path, sources: dict[str, CurveSource]) -> list[ReferenceCurve]:
    tables: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            tables[row["table"]].append(row)
    curves = []
    for name, rows in tables.items():
        first = rows[0]
        source = _source(first["source"] or name)
        sources.setdefault(source.key, source)
        curves.append(_public_curve(name, rows, source.key))
    return curves


def _public_curve(name: str, rows: list[dict[str, str]], source: str) -> ReferenceCurve:
    first = rows[0]
    system = parse_system(first["system"])
    if first["nics"]:
        system = with_nics(system, first["nics"])
    hosts, ranks = int(first["hosts"]), int(first["ranks"])
    fabric = first["fabric"] or (system.network.name if system.network else "")
    factor = float(BY_NAME[first["collective"]].bus_factor(ranks))
    points = sorted((int(row["bytes"]), float(row["busbw_gb_s"])) for row in rows)
    return ReferenceCurve(
        source=source,
        run=name,
        gpu=gpu_word(system.gpu),
        per_host=ranks // hosts,
        hosts=hosts,
        nics=nics_text(system) if hosts > 1 else "",
        fabric=fabric if hosts > 1 else "",
        collective=first["collective"],
        nccl=first["nccl"],
        algorithm=first["algorithm"],
        sizes=tuple(size for size, _ in points),
        times_us=tuple(_rounded(size * factor / busbw / 1e3) for size, busbw in points),
    )


def _of_log(folder: Path, log: Log, sources: dict[str, CurveSource]) -> ReferenceCurve:
    result = read.read((folder / log.file).read_bytes(), log.file, collective=log.collective)
    assert isinstance(result, Result)
    system = parse_system(log.system)
    source = _source(log.source)
    sources.setdefault(source.key, source)
    curve = curve_of(result, system, (log.hosts, system.gpus), source.key, log.run)
    assert curve is not None
    return msgspec.structs.replace(curve, collective=log.collective)


def _own(sources: dict[str, CurveSource], others: Sequence[ReferenceCurve]) -> list[ReferenceCurve]:
    """Results of this project's benchmarks."""
    elsewhere = {
        curve.collective for curve in others if curve.hosts == 1 and curve.sizes[0] <= LATENCY_BYTES
    }
    curves = []
    for folder in OWN:
        name = Path(folder).name
        own = msgspec.structs.replace(_source(f"busbw {folder}"), key=name)
        sources.setdefault(name, own)
        for path in sorted((ROOT / folder).glob("*.json")):
            result = read.read(path.read_bytes(), path.name)
            assert isinstance(result, Result)
            system = of_result(result)
            assert isinstance(system, System)
            curve = curve_of(result, system, shape(result), name, name)
            assert curve is not None
            least = SMALL_BYTES if curve.collective in elsewhere else 0
            curves.append(_from_size(curve, least))
    return curves


def _from_size(curve: ReferenceCurve, least_bytes: int) -> ReferenceCurve:
    kept = [at for at, size in enumerate(curve.sizes) if size >= least_bytes]
    return msgspec.structs.replace(
        curve,
        sizes=tuple(curve.sizes[at] for at in kept),
        times_us=tuple(curve.times_us[at] for at in kept),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _one_curve_a_line(table: ReferenceTable) -> bytes:
    """JSON that a diff can show."""
    schema = table.__struct_config__.tag
    sources = ",\n".join(msgspec.json.encode(source).decode() for source in table.sources)
    curves = ",\n".join(_without_defaults(curve) for curve in table.curves)
    text = f'{{"schema":"{schema}","sources":[\n{sources}\n],"curves":[\n{curves}\n]}}\n'
    assert msgspec.json.decode(text, type=ReferenceTable).curves == table.curves
    return text.encode()


def _without_defaults(curve: ReferenceCurve) -> str:
    values = msgspec.to_builtins(curve)
    kept = {
        name: value
        for name, value in values.items()
        if value not in ("", 1) or name in ("run", "per_host")
    }
    kept["times_us"] = [int(value) if value == int(value) else value for value in curve.times_us]
    return msgspec.json.encode(kept).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
