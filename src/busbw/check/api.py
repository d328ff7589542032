"""`busbw.check`: whether a machine, or every node of a cluster, is set up correctly.

The command line uses its parts.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack, cast, overload

import msgspec

from busbw.check import cluster, load
from busbw.check.base import Check
from busbw.check.chosen import check_rows, chosen_checks, refuse_contradictions
from busbw.check.earlier import earlier_by_host, read_earlier, read_first, refuse_watch_options
from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.groups import faults
from busbw.check.load import all_reduce, gpu_copies, rdma_loopback
from busbw.check.machine import Machine
from busbw.check.types import CheckReport, ClusterReport
from busbw.core.errors import UsageError, unknown
from busbw.core.finding import CheckRow, Layer
from busbw.core.ranges import require_between
from busbw.host.limited import CALL_S, within
from busbw.host.snapshot import recorded
from busbw.host.source import LiveMachine, Source
from busbw.launch.hostfile import given_hosts
from busbw.launch.hosts import hosts_argument, without_user
from busbw.measure import record
from busbw.reference.place import own_file

STDIN = "-"
LIMIT_S = 60.0
SHORTEST_S, DAY_S = 0.1, 86400.0
Names = str | Sequence[str]
Snapshot = str | Path


class CheckOptions(TypedDict, total=False):
    """Which checks, as the options of `busbw check`."""

    only: Names  # checks, by name or id
    layer: Names
    skip: Names
    expect: Snapshot | None  # file of what a node should have
    since: Snapshot | None  # an earlier snapshot of the machine, or a folder with those of many


class HostOptions(CheckOptions, total=False):
    """How a host is read that answers now."""

    limit_s: float  # for this host, or for each
    watch_s: float | None  # read twice, so many seconds apart


class MachineOptions(HostOptions, total=False):
    """How one machine is read."""

    load_s: float | None  # first load GPUs and network ports for so many seconds


@overload  # a text is a sequence of texts too, and the first one that fits is taken
def check(  # type: ignore[overload-overlap]
    machine: Snapshot | None = None, **options: Unpack[MachineOptions]
) -> CheckReport: ...


@overload
def check(machine: Sequence[Snapshot], **options: Unpack[CheckOptions]) -> ClusterReport: ...


@overload
def check(*, hosts: Names, **options: Unpack[HostOptions]) -> ClusterReport: ...


@overload
def check(*, hostfile: Snapshot, **options: Unpack[HostOptions]) -> ClusterReport: ...


def check(
    machine: Snapshot | Sequence[Snapshot] | None = None,
    *,
    hosts: Names | None = None,
    hostfile: Snapshot | None = None,
    **options: Any,
) -> CheckReport | ClusterReport:
    """Check this machine, or that of a snapshot or kernel log: a CheckReport. Of a list of
    snapshots, or of hosts over ssh, it is a ClusterReport with what differs between them.

    The options are those of `busbw check`: MachineOptions. UsageError for an unknown check, and for
    a file that is no snapshot; NoMeasurement if no host answers.
    """
    known = MachineOptions.__annotations__
    for name in options:
        if name not in known:
            raise unknown("option", name, dict(zip(known, known, strict=True)))
    given = cast(
        MachineOptions, {name: value for name, value in options.items() if value is not None}
    )
    names = [host.name for host in given_hosts(hosts_argument(hosts), hostfile)]
    if machine is None or isinstance(machine, str | Path):
        files, several = [str(machine)] if machine else [], bool(names)
    else:
        files, several = list(map(str, machine)), True
    return _check(names, files, given, several=several)


def _layer(name: str) -> str:
    """The layer's own spelling."""
    layers = {layer.value.lower(): layer.value for layer in Layer}
    if name.lower() not in layers:
        raise unknown("layer", name, layers)
    return layers[name.lower()]


def _check(
    names: Sequence[str], files: Sequence[str], options: MachineOptions, *, several: bool
) -> CheckReport | ClusterReport:
    only, skip = _listed(options.get("only", ())), _listed(options.get("skip", ()))
    layers = [_layer(name) for name in _listed(options.get("layer", ()))]
    checks = chosen_checks(only, layers, skip)
    expect = expected(str(options.get("expect", "")), check_rows(only, layers, skip))
    limit_s, watch_s = options.get("limit_s", LIMIT_S), options.get("watch_s")
    since, load_s = str(options.get("since", "")), options.get("load_s")
    for name, seconds in (("limit_s", limit_s), ("watch_s", watch_s), ("load_s", load_s)):
        if seconds is not None:
            require_between(name, seconds, SHORTEST_S, DAY_S)
    refuse_contradictions(names, files, load=bool(load_s), differences=False, ignored=False)
    refuse_watch_options(watch_s, since, files, hosts=len(names))
    if not several:
        if files:
            return of_source(recorded(Path(files[0])), files[0], checks, expect, since)
        return here(checks, expect, load_s, watch_s, since, limit_s, lambda: own_file(os.environ))
    if not names and not files:
        raise UsageError("an empty list of snapshots", "busbw check --save FILE makes one")
    words = words_of_hosts(only, layers, skip, watch_s, expect)
    nodes = of_several(names, files, words, limit_s, watch_s, checks, expect, since)
    nodes.faults = faults(nodes.nodes)
    if only or layers:
        nodes.differences = []
    return nodes


def _listed(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def expected_ids(rows: Sequence[CheckRow]) -> frozenset[str]:
    """The expectations among these rows."""
    return frozenset(row.id for row in rows if row.layer is Layer.EXPECTED)


def expected(name: str, rows: Sequence[CheckRow]) -> Expect | None:
    """A file of what a node should have, with the expectations of these rows; None without one.

    UsageError if it has an error, or if it is missing and the rows are nothing but expectations.
    """
    ids = expected_ids(rows)
    if not name:
        if ids and len(ids) == len(rows):
            raise UsageError(
                f"{rows[0].name} compares with a file of what a node should have",
                "add --expect node.toml",
            )
        return None
    read = file.load(name)
    file.parse(read)
    return Expect(read, ids)


def of_source(
    source: Source, name: str, checks: Sequence[Check], expect: Expect | None, since: str
) -> CheckReport:
    """The findings on a recorded machine; `name` is its file, `since` an earlier snapshot."""
    machine = Machine(source, read_earlier(since, source) if since else None)
    return judge(machine, checks, name, expect)


def here(
    checks: Sequence[Check],
    expect: Expect | None,
    load_s: float | None,
    watch_s: float | None,
    since: str,
    limit_s: float,
    own_runs: Callable[[], Path | None],
) -> CheckReport:
    """The findings on this machine: after a load, if `load_s` is given, which comes between the
    two readings of `watch_s`. `own_runs` gives the file of reference curves for the load.
    """
    earlier = read_first(checks, watch_s, limit_s)

    def work(source: Source) -> CheckReport:
        if load_s:
            load.begin(source)
        before = read_earlier(since, source) if since else earlier
        return judge(Machine(source, before), checks, "", expect)

    loads = (gpu_copies, rdma_loopback, all_reduce)
    longest_s = [part.longest_s(load_s) for part in loads] if load_s else [0.0]
    source = load.Loaded(load_s, own_runs()) if load_s else LiveMachine()
    return within(work, source, limit_s=limit_s + sum(longest_s), call_s=CALL_S + max(longest_s))


def of_several(
    hosts: Sequence[str],
    files: Sequence[str],
    words: Sequence[str],
    limit_s: float,
    watch_s: float | None,
    checks: Sequence[Check],
    expect: Expect | None,
    since: str,
    save: str = "",
    *,
    newest: bool = False,
) -> ClusterReport:
    """The findings on these hosts, which run `busbw check` with `words`; or, without hosts, on the
    machines of snapshots.

    `since` is a folder of earlier snapshots, `save` one in which a snapshot of each host is saved.
    With either the hosts are read as snapshots, and judged here. `newest` is for snapshots as in
    `recorded_nodes`.
    """
    earlier = earlier_by_host(since) if since else None
    if not hosts:
        return cluster.recorded_nodes(files, checks, expect, earlier, newest=newest)
    if not save and not since:
        stdin = msgspec.json.encode(expect.file) if expect else b""
        return cluster.ask(hosts, words, limit_s, watch_s or 0.0, stdin)
    archives, silent = cluster.fetch(hosts, limit_s)
    with TemporaryDirectory(prefix="busbw-") as own:
        saved = {snapshot_file(save or own, host): data for host, data in archives.items()}
        for file, data in saved.items():
            record.save(data, file, "make room in the folder")
        report = cluster.recorded_nodes(list(map(str, saved)), checks, expect, earlier)
    report.silent = silent
    return report


def snapshot_file(folder: str, host: str) -> Path:
    """Where the snapshot of a host is saved in a folder."""
    return Path(folder) / f"{without_user(host)}.jsonl"


def words_of_hosts(
    only: Sequence[str],
    layers: Sequence[str],
    skip: Sequence[str],
    watch_s: float | None,
    expect: Expect | None,
    *,
    differences: bool = False,
) -> list[str]:
    """The options with which other hosts run the same checks, or state what may differ."""
    if differences:
        return ["--differences"]
    words = []
    for name in only:
        words += ["--only", name]
    for layer in layers:
        words += ["--layer", layer]
    for name in skip:
        words += ["--skip", name]
    if watch_s:
        words += ["--watch-for", f"{watch_s:g}"]
    return [*words, "--expect", STDIN] if expect else words
