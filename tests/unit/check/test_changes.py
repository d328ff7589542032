"""Checks of two weeks compared: what is new, worse, gone, unchanged, no longer judged, and which
facts have changed.
"""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import changed
from tree import Change, Tree

import busbw
from busbw.check import junit
from busbw.check.changes import ChangeReport, Side, changes
from busbw.check.changes_text import text
from busbw.check.rates import RATE_UNKNOWN
from busbw.check.registry import BY_NAME
from busbw.check.snapshot import snapshot
from busbw.check.types import (
    CheckReport,
    ClusterReport,
    Evidence,
    Fault,
    NodeFindings,
    ReportedFinding,
)
from busbw.cli.main import guarded
from busbw.core.finding import Verdict, exit_of
from busbw.host.snapshot import archives_in

PASS, WARN, FAIL, UNKNOWN, SKIP = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.UNKNOWN,
    Verdict.SKIP,
)
Findings = list[ReportedFinding]


def power(verdict: Verdict, message: str, subject: str = "GPU 3", **more: object) -> Findings:
    """A finding of the check of power limits."""
    return [found("gpu-power-limit", verdict, subject, message, **more)]


def found(check: str, verdict: Verdict, subject: str, message: str, **more: object):
    row = BY_NAME[check]
    return ReportedFinding(
        id=row.id,
        name=row.name,
        layer=row.layer.value,
        verdict=verdict,
        subject=subject,
        message=message,
        **more,
    )


LOW = power(WARN, "power limit 400 W, below the default of 700 W")
LOWER = power(WARN, "power limit 300 W, below the default of 700 W")
OTHER = power(WARN, "power limit 400 W, below the default of 700 W", "GPU 5")
FULL = power(PASS, "power limit 700 W")
ALL_FULL = power(PASS, "8 GPUs at 700 W", "")
LOST = [found("gpu-count", FAIL, "GPU 3", "GPU 3 does not answer NVML"), *power(UNKNOWN, "is lost")]
DENIED = power(UNKNOWN, "no permission", optional=True)
HANGS = power(UNKNOWN, "NVML does not answer", "")
XID_79 = [found("gpu-xid", FAIL, "GPU 1", "Xid 79 (GPU has fallen off the bus), 1 min ago")]
XID_79_LATER = [found("gpu-xid", FAIL, "GPU 1", "Xid 79 (GPU has fallen off the bus), 8 days ago")]
XID_94 = [found("gpu-xid", FAIL, "GPU 1", "Xid 94 (contained memory error), 2 min ago")]
OWN_NAME = [found("hostname-loopback", WARN, "", "/etc/hosts gives g1 the address 127.0.1.1")]


LINKS = [found("nic-symbol-errors", WARN, "mlx5_3", "150 errors")]
NO_ERRORS = [found("nic-symbol-errors", PASS, "mlx5_3", "no errors")]
Week = dict[str, NodeFindings]


def node(host: str, findings: Findings, at: str = "", **facts: str) -> NodeFindings:
    return NodeFindings(report=CheckReport(host=host, at=at, findings=findings), facts=facts)


def week(**nodes: Findings) -> Week:
    return {host: node(host, findings) for host, findings in nodes.items()}


def compared(before: Week, after: Week) -> ChangeReport:
    return changes(Side("w1", before, {}), Side("w2", after, {}))


@pytest.mark.parametrize(
    ("before", "after", "boots", "named_as"),
    [
        (LINKS, NO_ERRORS, ("a", "b"), "booted"),
        (LINKS, NO_ERRORS, ("a", "a"), "gone"),
        (LINKS, NO_ERRORS, ("", "b"), "gone"),
        (LINKS, LINKS, ("a", "b"), "unchanged"),
        (LINKS, [], ("a", "b"), "unjudged"),
        (LOW, FULL, ("a", "b"), "gone"),
    ],
)
def test_counters_that_a_boot_has_reset_say_not_that_a_fault_is_gone(
    before, after, boots, named_as
):
    nodes = [{"g1": node("g1", findings)} for findings in (before, after)]
    for one, boot in zip(nodes, boots, strict=True):
        one["g1"].boot = boot
    report = compared(*nodes)
    assert [fault.hosts for fault in getattr(report, named_as)] == [["g1"]]
    kinds = ("new", "worse", "gone", "booted", "unchanged", "unjudged")
    assert sum(len(getattr(report, kind)) for kind in kinds) == 1
    told = "not known, as the host was booted since: 1 fault\n"
    assert (told in text(report)) == (named_as == "booted")


def named(faults: list[Fault]) -> list[tuple[str, str, list[str]]]:
    return [(fault.verdict.value, fault.name, fault.hosts) for fault in faults]


@pytest.mark.parametrize(
    ("before", "after", "new", "gone", "unchanged", "unjudged"),
    [
        pytest.param(FULL, LOW, 1, 0, 0, 0, id="new"),
        pytest.param(LOW, FULL, 0, 1, 0, 0, id="gone"),
        pytest.param(LOW, ALL_FULL, 0, 1, 0, 0, id="gone, as the check says of all parts"),
        pytest.param(LOW, LOWER, 0, 0, 1, 0, id="another number is the same fault"),
        pytest.param(XID_79, XID_79_LATER, 0, 0, 1, 0, id="so is another age"),
        pytest.param(XID_79, XID_94, 1, 1, 0, 0, id="another Xid is another fault"),
        pytest.param(LOW, [*LOW, *OTHER], 1, 0, 1, 0, id="another part"),
        pytest.param(LOW, power(FAIL, "power limit 400 W"), 1, 1, 0, 0, id="a graver verdict"),
        pytest.param(LOW, LOST, 1, 0, 0, 1, id="the part does not answer"),
        pytest.param(LOW, DENIED, 0, 0, 0, 1, id="the value is not given any more"),
        pytest.param(LOW, HANGS, 1, 0, 0, 1, id="the check could not judge any part"),
        pytest.param(LOW, [], 0, 0, 0, 1, id="the check did not run"),
        pytest.param(LOW, power(SKIP, "no GPU", ""), 0, 0, 0, 1, id="nothing to judge is left"),
        pytest.param(LOW, OTHER, 1, 0, 0, 1, id="only other parts are left"),
        pytest.param([*LOW, *OTHER], [*OTHER, *XID_79], 1, 0, 1, 1, id="a lost part"),
        pytest.param(
            [*LOW, *OTHER],
            [*OTHER, found("gpu-temperature", PASS, "GPU 3", "60 C")],
            0,
            1,
            1,
            0,
            id="a check that names bad parts only",
        ),
        pytest.param(OWN_NAME, OWN_NAME, 0, 0, 1, 0, id="a text with the name of the host"),
    ],
)
def test_each_finding_is_in_one_group(before, after, new, gone, unchanged, unjudged):
    report = compared(week(g1=before), week(g1=after))
    groups = (report.new, report.gone, report.unchanged, report.unjudged)
    assert tuple(map(len, groups)) == (new, gone, unchanged, unjudged)
    verdicts = [fault.verdict for fault in report.new] + [UNKNOWN] * unjudged
    assert report.verdicts() == verdicts


def test_one_fault_on_many_nodes_is_one_entry_with_a_range():
    names = [f"g{number}" for number in range(1, 5)]
    report = compared(week(**dict.fromkeys(names, FULL)), week(**dict.fromkeys(names, LOW)))
    assert named(report.new) == [("warn", "gpu-power-limit", names)]
    assert text(report).splitlines() == [
        "w1 to w2: 4 nodes compared",
        "",
        "new: 1 fault",
        "WARN    GPU 3: power limit 400 W, below the default of 700 W  [BW014 gpu-power-limit]",
        "        on: g[1-4]",
        "",
        "evidence and fixes: busbw check --from w2 --only gpu-power-limit",
    ]


def test_nodes_of_one_side():
    report = compared(week(g1=FULL, g2=FULL), week(g1=FULL, g3=LOW))
    assert (report.nodes, report.only_before, report.only_after) == (["g1"], ["g2"], ["g3"])
    assert named(report.new) == [("warn", "gpu-power-limit", ["g3"])]
    assert exit_of(report.verdicts()) == 3, "g2 may be dead"
    assert "UNKNOWN g2: only in w1\n" in text(report)


def test_a_host_whose_checks_are_muted_may_be_away():
    before = week(g1=FULL, g2=FULL)
    before["g2"].compared = False
    assert compared(before, week(g1=FULL)).verdicts() == []


def test_of_several_snapshots_of_a_node_the_latest_counts():
    later = {"b": node("g1", FULL, "2026-11-09"), "a": node("g1", LOW, "2026-11-08")}
    assert compared(week(g1=FULL), later).new == []


def limit(watts: int) -> Findings:
    evidence = Evidence("nvmlDeviceGetEnforcedPowerLimit", f"{watts} W", "700 W or more")
    return power(WARN, f"power limit {watts} W, below the default of 700 W", evidence=(evidence,))


def errors(count: int, verdict: Verdict = WARN) -> Findings:
    message = f"{count} errors since the driver was loaded"
    return [found("nic-symbol-errors", verdict, "mlx5_2", message, weight=count)]


def version(text: str) -> Findings:
    evidence = Evidence("fw_ver", text, "28.41.1000")
    return [found("nic-firmware", WARN, "mlx5_2", f"firmware {text}", evidence=(evidence,))]


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        (limit(400), limit(200), True),
        (limit(400), limit(400), False),
        (limit(400), limit(600), False),
        (errors(10), errors(10000), True),
        (errors(10000), errors(10), False),
        (XID_79, XID_79_LATER, False),
        (version("28.41.0900"), version("28.9.0900"), False),
    ],
)
def test_a_known_finding_that_has_become_worse(before, after, is_worse):
    report = compared(week(g1=before), week(g1=after))
    assert (len(report.worse), len(report.unchanged)) == (is_worse, not is_worse)
    assert report.verdicts() == [fault.verdict for fault in report.worse]


def test_a_worse_fault_of_many_nodes_says_what_it_was():
    before = week(g1=errors(10, FAIL), g2=errors(30, FAIL), g3=errors(5, FAIL))
    report = compared(before, week(g1=errors(900, FAIL), g2=errors(40, FAIL), g3=errors(5, FAIL)))
    assert exit_of(report.verdicts()) == 1
    assert text(report).splitlines()[2:6] == [
        "worse: 1 fault",
        "FAIL    mlx5_2: 40 or 900 errors since the driver was loaded  [BW077 nic-symbol-errors]",
        "        on: g[1-2]",
        "        was: mlx5_2: 10 or 30 errors since the driver was loaded",
    ]


def total(count: int, at: str, boot: str = "a") -> NodeFindings:
    """A node whose counter is known from one reading."""
    passes = count < 120
    message = f"{count} errors since the driver was loaded"
    message, verdict = (message, PASS) if passes else (f"{message}; {RATE_UNKNOWN}", WARN)
    weight = 0 if passes else count
    one = node("g1", [found("nic-symbol-errors", verdict, "mlx5_2", message, weight=weight)], at)
    one.boot = boot
    return one


FIRST, WEEK_LATER = "2026-11-01T10:00:00+00:00", "2026-11-08T10:00:00+00:00"


@pytest.mark.parametrize(
    ("before", "after", "kind", "told"),
    [
        ((150, FIRST), (21150, WEEK_LATER), "worse", "; 21000 more in 168 h, 125 an hour"),
        ((150, FIRST), (151, WEEK_LATER), "worse", "; 1 more in 168 h, 0.006 an hour"),
        ((150, FIRST), (150, WEEK_LATER), "unchanged", "; 0 more in 168 h, 0 an hour"),
        ((7, FIRST), (175, WEEK_LATER), "new", "; 168 more in 168 h, 1 an hour"),
        ((7, FIRST), (175, WEEK_LATER, "b"), "new", f"; {RATE_UNKNOWN}"),
        ((150, FIRST), (151, WEEK_LATER, "b"), "worse", f"; {RATE_UNKNOWN}"),
        ((150, FIRST), (120, WEEK_LATER), "unchanged", f"; {RATE_UNKNOWN}"),
        ((150, ""), (151, WEEK_LATER), "worse", f"; {RATE_UNKNOWN}"),
        ((150, WEEK_LATER), (151, FIRST), "worse", f"; {RATE_UNKNOWN}"),
    ],
)
def test_two_snapshots_say_how_fast_a_counter_rises(before, after, kind, told):
    report = compared({"g1": total(*before)}, {"g1": total(*after)})
    (fault,) = getattr(report, kind)
    assert fault.message == f"mlx5_2: {after[0]} errors since the driver was loaded{told}"
    assert kind != "worse" or fault.was == "mlx5_2: 150 errors since the driver was loaded"


PORTS = ", ".join(f"mlx5_{number}" for number in range(8))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"MTU": "9000"}, {"MTU": "1500"}, ["WARN    MTU: 9000 -> 1500"]),
        ({"MTU": "9000"}, {"MTU": "9000"}, []),
        ({"MTU": "9000"}, {}, ["WARN    MTU: 9000 -> (none)"]),
        (
            {"ports": PORTS},
            {"ports": PORTS.replace("mlx5_3, ", "")},
            ["WARN    ports: without mlx5_3"],
        ),
        (
            {"MTU": "9000", "rate": "400", "ports": "8", "driver": "a"},
            {"driver": "b"},
            ["WARN    3 facts are missing now: MTU, rate, ports", "WARN    driver: a -> b"],
        ),
    ],
)
def test_facts_that_have_changed_alike_on_many_hosts(before, after, lines):
    names = ("g1", "g2", "g3")
    report = compared(
        {name: node(name, FULL, **before) for name in names},
        {name: node(name, FULL, **after) for name in names},
    )
    told = [line for line in text(report).splitlines() if line.startswith("WARN")]
    assert told == lines
    assert text(report).count("        on: g[1-3]\n") == len(lines)
    codes = [exit_of(report.verdicts(), fail_on) for fail_on in (FAIL, WARN)]
    assert codes == [0, 1 if lines else 0]


def test_a_fact_that_has_changed_differently_on_each_host_is_one_line():
    hosts = [f"g{number}" for number in range(1, 7)]
    before = {name: node(name, FULL, memory="2014") for name in hosts}
    after = {name: node(name, FULL, memory=f"{at}") for at, name in enumerate(hosts)}
    report = compared(before, after)
    assert "WARN    memory: 2014 -> 0 to 5\n        on: g[1-6]\n" in text(report)
    for fail_on in (FAIL, WARN):
        cases = junit.changes(report, fail_on)
        assert all(f"<system-out>2014 -&gt; {at}</system-out>" in cases for at in range(6))


def test_archives_in_a_folder_are_known_by_name_or_content(tmp_path):
    folder = Path(saved(tmp_path))
    content = (folder / "g1.jsonl").read_bytes()
    (folder / "packed").write_bytes(gzip.compress(content))
    (folder / "README.md").write_text("our nodes\n")
    (folder / "cut.jsonl").write_bytes(content[:5000])
    (folder / ".hidden.jsonl").write_bytes(content)
    (folder / "more").mkdir()
    names = [Path(name).name for name in archives_in(str(folder))]
    assert names == ["cut.jsonl", "g1.jsonl", "packed"]
    (folder / "proc").mkdir()
    assert archives_in(str(folder)) == [], "a copy of a machine's files"


def saved(folder: Path, change: Change | None = None) -> str:
    """The folder with the snapshot of a node."""
    folder.mkdir(exist_ok=True)
    (folder / "g1.jsonl").write_text(_archive(change))
    return str(folder)


@cache
def _archive(change: Change | None) -> str:
    tree = healthy()
    if change:
        change(tree)
    return snapshot(tree.source())


SLOW = changed(3, power_limit_mw=400000)
DEAD = changed(3, error="GPU is lost")


def numa_balancing(value: str) -> Change:
    return lambda tree: tree.file("/proc/sys/kernel/numa_balancing", value)


def old_firmware(tree: Tree) -> None:
    tree.file("/sys/class/infiniband/mlx5_3/fw_ver", "28.31.1014")


BALANCED, UNBALANCED = numa_balancing("0"), numa_balancing("1")


@pytest.mark.parametrize(
    ("later", "more", "code"),
    [
        (None, "", 0),
        (SLOW, "", 0),
        (SLOW, "--fail-on warn", 1),
        (DEAD, "--format json", 1),
        (SLOW, "--tolerance 1%", 2),
        (SLOW, "--format junit", 0),
        (SLOW, "--format markdown", 2),
    ],
)
def test_compare_ends_by_the_verdicts_of_what_is_new(later, more, code, tmp_path, capsys):
    before, after = saved(tmp_path / "w1"), saved(tmp_path / "w2", later)
    assert guarded(["compare", before, f"{after}/g1.jsonl", *more.split()]) == code
    printed = capsys.readouterr()
    if "junit" in more:
        told = "<system-out>warn on gpu-1: GPU 3: power limit 400 W, below the default of 700 W</"
        assert told in printed.out
    if "json" in more:
        assert json.loads(printed.out)["new"][0]["name"] == "gpu-count"
    assert code != 2 or "snapshots" in printed.err


@pytest.mark.parametrize(
    ("later", "mute", "code", "told"),
    [
        (DEAD, 'check = "gpu-count"\nsubject = "GPU 3"', 0, "MUTED   findings on gpu-1\n"),
        (DEAD, 'check = "gpu-count"\nsubject = "GPU 5"', 1, "accepts no finding of GPU 5"),
        (DEAD, 'check = "*"\nhost = "gpu-1"', 0, "MUTED   findings on gpu-1\n"),
        (DEAD, 'check = "*"\nhost = "gpu-[2-9]"', 1, "none of these hosts"),
        (SLOW, 'check = "gpu-power-limit"', 0, "MUTED   findings on gpu-1\n"),
        (UNBALANCED, 'check = "kernel-numa-balancing"', 0, "MUTED   findings on gpu-1\n"),
        (UNBALANCED, 'check = "nic-mtu"', 1, "NUMA balancing: 0 -> 1"),
    ],
)
def test_mutes_of_a_file_are_no_changes(later, mute, code, told, tmp_path, capsys):
    before, after = saved(tmp_path / "w1", BALANCED), saved(tmp_path / "w2", later)
    (tmp_path / "mutes.toml").write_text(f'[[mute]]\n{mute}\nreason = "RMA"\nuntil = 2999-01-01\n')
    words = ["compare", before, after, "--fail-on=warn", "--expect", str(tmp_path / "mutes.toml")]
    assert guarded(words) == code
    printed = capsys.readouterr()
    assert told in printed.out + printed.err


@pytest.mark.parametrize(
    ("before", "later", "expected", "code", "told"),
    [
        (None, None, "[gpus]\ncount = 8", 0, "no finding on either side"),
        (None, SLOW, '[severity]\ngpu-power-limit = "fail"', 1, "new: 1 fault\nFAIL    GPU 3"),
        (SLOW, SLOW, '[severity]\ngpu-power-limit = "fail"', 0, "unchanged: 1 fault\nFAIL    GPU 3"),
        (None, old_firmware, '[[ports]]\nfirmware_min = "28.41.1000"', 1, "new: 2 faults\nFAIL    mlx5_3: fi"),
        (old_firmware, None, '[[ports]]\nfirmware_min = "28.41.1000"', 0, "gone: 2 faults\nFAIL    mlx5_3: fi"),
    ],
)  # fmt: skip
def test_what_a_file_expects_is_judged_at_both_times(
    before, later, expected, code, told, tmp_path, capsys
):
    sides = [saved(tmp_path / "w1", before), saved(tmp_path / "w2", later)]
    file = tmp_path / "a node.toml"
    file.write_text(f"{expected}\n")
    assert guarded(["compare", *sides, "--expect", str(file)]) == code
    printed = capsys.readouterr().out
    assert told in printed
    assert f"--expect '{file}' --only" in " ".join(printed.split()) or not code


def test_a_folder_of_snapshots_is_shown_and_loaded_as_its_nodes(tmp_path, capsys):
    folder = saved(tmp_path / "w1", DEAD)
    (Path(folder) / "cut.jsonl").write_text(_archive(None)[:5000])
    assert guarded(["show", folder]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 nodes, 1 answered: 1 fail\n") and "[BW001 gpu-count]" in out
    nodes = busbw.load(folder)
    assert isinstance(nodes, ClusterReport) and nodes.faults[0].name == "gpu-count"


def test_snapshots_and_runs_are_not_compared(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    assert guarded(["compare", saved(tmp_path / "w1"), str(tmp_path / "run.json")]) == 2
    assert "w1 has snapshots of machines," in capsys.readouterr().err


def test_a_snapshot_that_was_cut_off_is_unknown(tmp_path, capsys):
    before, after = saved(tmp_path / "w1"), saved(tmp_path / "w2")
    cut = Path(after) / "g2.jsonl"
    cut.write_text(_archive(None)[:5000])
    assert guarded(["compare", before, after]) == 3
    assert f"UNKNOWN {cut}: " in capsys.readouterr().out.replace("\n  ", " ")
