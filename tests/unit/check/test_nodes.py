"""Many nodes compared, snapshots, and machines whose files hold garbage."""

import gzip
import json
import os
import random
import resource
import time
from functools import cache
from itertools import product
from pathlib import Path

import msgspec
import pytest
from healthy import healthy
from hypothesis import given
from hypothesis import strategies as st
from tree import environment

from busbw.check import cluster
from busbw.check.brief import brief
from busbw.check.cluster import differences
from busbw.check.cluster_text import cluster_text
from busbw.check.facts import facts, merged
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, examine
from busbw.check.snapshot import snapshot
from busbw.check.trend.growth import error_counts
from busbw.check.types import CheckReport, ClusterReport, LeftOut, left_out
from busbw.cli.main import guarded
from busbw.core.finding import Verdict
from busbw.host.snapshot import parse_archive
from busbw.host.source import LiveMachine

MIB = 1 << 20


def test_node_that_differs_is_named_with_its_value():
    nodes = {f"gpu-{number}": {"kernel": "6.8", "MTU of RDMA ports": "9000"} for number in range(8)}
    nodes["gpu-5"] = {
        "kernel": "6.8",
        "MTU of RDMA ports": "9000 (7), 1500 (mlx5_3)",
        "hypervisor": "QEMU",
    }
    difference_of = {difference.fact: difference for difference in differences(nodes)}
    assert difference_of.keys() == {"MTU of RDMA ports", "hypervisor"}
    assert (
        difference_of["MTU of RDMA ports"].usual,
        difference_of["MTU of RDMA ports"].usual_hosts,
    ) == ("9000", 7)
    assert difference_of["MTU of RDMA ports"].odd == {"9000 (7), 1500 (mlx5_3)": ["gpu-5"]}
    assert difference_of["hypervisor"].odd == {"QEMU": ["gpu-5"]}


def test_of_several_snapshots_of_a_host_in_a_folder_the_newest_counts(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)  # short paths, which no line is broken for
    folder = Path("daily")
    folder.mkdir()
    for host, day in product((1, 2), (1, 2, 3)):
        tree = healthy().file("/proc/sys/kernel/hostname", f"gpu-{host}")
        tree.call("time", f"2026-11-0{day}T08:00:00+00:00")
        (folder / f"gpu-{host}-day{day}.jsonl").write_text(snapshot(tree.source()))
    (folder / "z.jsonl").write_text(snapshot(tree.source()))
    copy = f"left out, as the same as another of the host: {folder}/z.jsonl"
    left = "left out, as older than another of the host: "
    older = f"{folder}/gpu-[1-2]-day[1-2].jsonl"
    for words in (["check", "--from"], ["show"]):
        assert guarded([*words, str(folder)]) == 0
        told = capsys.readouterr().out
        assert told.startswith("2 nodes, 2 answered: 2 ")
        assert left + older in told and copy in told
    days = [str(folder / f"gpu-1-day{day}.jsonl") for day in (1, 2)]
    assert guarded(["check", "--from", days[0], "--from", days[1]]) == 0
    assert capsys.readouterr().out.startswith("2 nodes, 2 answered: 2 ")
    page = Path("page.html")
    assert guarded(["report", str(folder), "--output", str(page)]) == 0
    told = capsys.readouterr().err
    assert f"note: {left}{older}" in told and f"note: {copy}" in told
    assert "Check of 2 nodes" in page.read_text() and left + older in page.read_text()
    weeks = []
    for day in (1, 3):
        weeks.append(Path(f"w{day}"))
        weeks[-1].mkdir()
        (folder / f"gpu-1-day{day}.jsonl").rename(weeks[-1] / "gpu-1.jsonl")
    assert guarded(["report", *map(str, weeks), "--output", str(page)]) == 0
    said = f"{left}w1/gpu-1.jsonl; what changed: busbw compare w1 w3"
    assert said in capsys.readouterr().err and said in page.read_text()
    assert guarded(["compare", "w1", "w3"]) == 0


@pytest.mark.parametrize(
    ("hosts", "times", "left"),
    [
        (("a", "a", "b"), ("1", "2", "1"), LeftOut(["0"], [])),
        (("a", "a", "b"), ("2", "1", "1"), LeftOut(["1"], [])),
        (("a", "a", "a"), ("1", "1", "0"), LeftOut(["2"], ["1"])),
        (("localhost", "localhost", ""), ("1", "2", "2"), LeftOut([], [])),
        (("a", "a", "b"), ("", "", ""), LeftOut([], [])),
    ],
)
def test_older_and_equal_readings_of_a_host(hosts, times, left):
    pairs = enumerate(zip(hosts, times, strict=True))
    reports = {str(name): CheckReport(host=host, at=at) for name, (host, at) in pairs}
    assert left_out(reports) == left


def test_what_else_is_in_a_folder_of_snapshots_is_named_and_not_waited_for(tmp_path, capfd):
    two_nodes(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    packed = tmp_path / "gpu-2.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "gpu-2.jsonl").read_bytes()))
    (tmp_path / "gpu-2.jsonl").unlink()
    (tmp_path / "notes.txt").write_text("ours\n")
    folder = str(tmp_path)
    of_folder, check = f" of {folder}: notes.txt, pipe.jsonl", ["check", "--differences", "--from"]
    for words, unread in (
        ([*check, folder], of_folder),
        ([*check, f"{folder}/*jsonl*"], f": {folder}/pipe.jsonl"),
        (["compare", folder, folder], of_folder),
    ):
        guarded(words)
        printed = capfd.readouterr()
        assert "2 nodes" in " ".join(printed.out.split())
        assert f"note: not read{unread}\n" in printed.err
    guarded(["report", folder, "--output", str(tmp_path / "page.html")])
    assert "Check of 2 nodes" in (tmp_path / "page.html").read_text()


def test_no_value_is_usual_without_a_majority():
    (difference,) = differences({"a": {"kernel": "1"}, "b": {"kernel": "2"}})
    assert (difference.usual, difference.usual_hosts, difference.odd) == (
        "",
        0,
        {"1": ["a"], "2": ["b"]},
    )


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(["x", "y", ""]), max_size=5))
def test_values_of_parts_are_one_text_if_all_are_equal(values):
    assert merged(values) == next(iter(values.values()), "") or len(set(values.values())) > 1


def test_healthy_servers_have_equal_facts():
    server_facts = facts(Machine(healthy().source()))
    other = facts(
        Machine(healthy().file("/sys/class/infiniband/mlx5_2/fw_ver", "28.40.1000").source())
    )
    assert server_facts["rate of RDMA ports"] == "400 Gb/sec (4X NDR)"
    (difference,) = differences({"a": server_facts, "b": server_facts, "c": other})
    assert difference.fact == "firmware of RDMA ports" and list(difference.odd.values()) == [["c"]]


def test_100_nodes_are_compared_within_4_cpu_s_and_25_mb(tmp_path, capfd, cpu_s):
    """A tenth of the nodes of the limit, 1,000 within 5 s, with eight times the time per node."""
    text = snapshot(healthy(ports=16).source())
    for number in range(100):
        changed_text = text.replace('"400 Gb/sec (4X NDR)', '"200 Gb/sec (2X NDR)', 1)
        (tmp_path / f"{number:03}.jsonl").write_text(changed_text if number == 70 else text)
    resource_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before_s = cpu_s()
    assert (
        guarded(["check", "--from", f"{tmp_path}/*.jsonl", "--differences", "--format", "json"])
        == 1
    )
    assert cpu_s() - before_s < 4  # half of it on an idle machine
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resource_before < 25 * MIB // 1024
    report = json.loads(capfd.readouterr().out)
    assert [
        (difference["fact"], list(difference["odd"].values()))
        for difference in report["differences"]
    ] == [("rate of RDMA ports", [[f"{tmp_path}/070.jsonl"]])]


def test_many_snapshots_give_the_findings_of_each(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "FILES_EACH", 2)  # two processes
    text = archive("gpu-1", "9000")
    files = [str(tmp_path / f"{number:02}.jsonl") for number in range(5)]
    for file in files:
        Path(file).write_text(text)
    report = cluster.recorded_nodes(files, CHECKS)
    assert [report.source for report in report.nodes] == files
    assert [node.findings for node in report.nodes] == [
        examine(parse_archive(text)).findings
    ] * len(files)


def test_the_snapshot_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "FILES_EACH", 3)
    text = archive("gpu-1", "9000")
    for number in range(3 * cluster.FILES_EACH):
        (tmp_path / f"{number:02}.jsonl").write_text(text if number != 7 else "garbage\n")
    report = cluster.recorded_nodes(sorted(map(str, tmp_path.iterdir())), CHECKS)
    assert len(report.nodes) == 3 * cluster.FILES_EACH - 1
    ((file, reason),) = report.unreadable.items()
    assert file.endswith("07.jsonl") and "line 1 is 'garbage'" in reason
    assert f"UNKNOWN {file}: {reason}" in cluster_text(report)


def test_a_pattern_without_files_is_refused(tmp_path, capfd):
    assert guarded(["check", "--from", f"{tmp_path}/*.jsonl"]) == 2
    assert f"error: --from {tmp_path}/*.jsonl: no file matches" in capfd.readouterr().err


@cache
def archive(name: str, mtu: str) -> str:
    tree = healthy().file("/proc/sys/kernel/hostname", name)
    return snapshot(tree.file("/sys/class/net/eth3/mtu", mtu).source())


def two_nodes(folder: Path) -> None:
    for name, mtu in {"gpu-1": "9000", "gpu-2": "1500"}.items():
        (folder / f"{name}.jsonl").write_text(archive(name, mtu))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--from", "{}/gpu-1.jsonl", "{}/gpu-2.jsonl"],
            "gpu-2.jsonl: --from takes one file, or a",
        ),
        (["--hosts", "h1,h2", "--save", "{}/gpu-1.jsonl"], "gpu-1.jsonl: File exists"),
        (["--hosts", "gpu-1,h2", "--save", "{}"], "--save {0}: gpu-1.jsonl: the file exists"),
        (["--hosts", "h1,h2", "--save", "-"], "--save -: of several hosts there are several"),
        (["--from", "{}/*.jsonl", "--save", "{}/h.jsonl"], "--from with --save: --save reads"),
        (["compare", "{}", "{}/none"], "{}/none: no such file or folder"),
        (["compare", "{}/none", "{}"], "{}/none: no such file or folder"),
    ],
)
def test_what_an_operator_mistypes_is_named(words, message, tmp_path, capfd):
    two_nodes(tmp_path)
    command = [] if words[0] == "compare" else ["check"]
    assert guarded([*command, *(word.format(tmp_path) for word in words)]) == 2
    assert message.format(tmp_path) in capfd.readouterr().err


def test_some_checks_come_without_a_comparison(tmp_path, capfd):
    two_nodes(tmp_path)
    words = ["check", "--from", str(tmp_path)]
    told = []
    for more in (
        [],
        ["--only", "nic-mtu"],
        ["--layer", "NIC"],
        ["--layer", "NIC", "--differences"],
    ):
        guarded([*words, *more])
        told.append("WARN    MTU of RDMA ports: " in capfd.readouterr().out)
    assert told == [True, False, False, True]
    for more in ("--nagios", "--format=json", "--format=junit", "--format=prometheus"):
        assert guarded([*words, "--only", "gpu-count", more, "--fail-on=warn"]) == 0
        printed = capfd.readouterr().out.replace('"differences": []', "")
        assert "differen" not in printed, more
    guarded([*words, "--nagios"])
    assert "; 1 pass; 1 different fact | nodes=2 " in capfd.readouterr().out
    (tmp_path / "gpu-2.jsonl").unlink()
    other = (
        healthy()
        .file("/proc/sys/kernel/hostname", "gpu-2")
        .file("/proc/sys/kernel/osrelease", "9.1")
    )
    (tmp_path / "gpu-2.jsonl").write_text(snapshot(other.source()))
    assert guarded([*words, "--nagios"]) == guarded(words) == 0
    capfd.readouterr()
    strict = [*words, "--fail-on", "warn"]
    assert (guarded([*strict, "--nagios"]), guarded([*strict, "--only", "nic-mtu"])) == (2, 0)
    assert "CRITICAL - 2 nodes: kernel differs; 2 pass; 1 diff" in capfd.readouterr().out


def test_all_checks_of_a_large_server_take_under_half_a_second():
    source = healthy(gpus=8, ports=16).source()
    started = time.process_time()
    examine(source)
    assert time.process_time() - started < 0.5


def test_snapshot_gives_the_same_findings():
    for source in (LiveMachine(), healthy().source()):
        text = snapshot(source)
        first = examine(parse_archive(text))
        assert facts(Machine(parse_archive(text))) == facts(Machine(source))
        assert first.findings == examine(parse_archive(snapshot(parse_archive(text)))).findings
        assert [finding.id for finding in first.findings] == [
            finding.id for finding in examine(source).findings
        ]


def test_secrets_do_not_reach_a_snapshot(monkeypatch):
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "hunter2")
    monkeypatch.setenv("NCCL_PSK", "hunter2")
    tree = healthy().file(
        "/proc/cmdline", "quiet luks.password=hunter2 proxy=http://me:hunter2@proxy/ iommu=pt"
    )
    assert "hunter2" not in snapshot(LiveMachine())
    assert "hunter2" not in snapshot(tree.source())
    assert b"hunter2" not in msgspec.json.encode(
        examine(tree.file("/etc/hosts", "token=hunter2\n127.0.1.1 gpu-1").source())
    )


def test_masking_keeps_the_findings_of_a_machine():
    setting = environment(
        NCCL_NOTE="-o PasswordAuthentication=no",
        SLURM_JWT="hunter2hunter2",
        OMPI_MCA_plm_ssh_args="--password x y",
    )
    tree = healthy()
    setting(tree)
    read = examine(parse_archive(snapshot(tree.source()))).findings
    assert [(finding.id, finding.subject, finding.verdict) for finding in read] == [
        (finding.id, finding.subject, finding.verdict)
        for finding in examine(tree.source()).findings
    ]
    assert sum(finding.verdict is Verdict.PASS for finding in read) > 50
    assert "hunter2" not in snapshot(tree.source())


BY_NATURE = (
    "BOOT_IMAGE=/a root=UUID=a{0} ip=10.0.0.{0} BOOTIF=01-{0} rd.luks.uuid={0}"
    " systemd.hostname=gpu-{0}"
)


def node(number, changes=(), layer="Ethernet", checks=()):
    """The facts of a server with its own address, name and uptime."""
    name = f"gpu-{number}"
    tree = (
        healthy(layer=layer)
        .file("/proc/sys/kernel/hostname", name)
        .file("/proc/uptime", f"{number * 10**4} 1")
    )
    tree.update("addresses", eth0=f"10.0.0.{number}/24").update(
        "environment", NCCL_HOSTID=name, SLURM_NODEID=str(number)
    )
    tree.file("/proc/cmdline", f"{BY_NATURE.format(number)} iommu=pt console=tty0 console=ttyS0")
    for change in changes:
        change(tree)
    return cluster.findings_here(tree.source(), checks, name)


usual = cache(node)


def nodes(*changes, layer="Ethernet", checks=()):
    """Four servers, the third with the changes and checked."""
    servers = {f"gpu-{number}": usual(number, layer=layer) for number in (1, 2, 4)}
    return cluster.joined(servers | {"gpu-3": node(3, changes, layer, checks)}, {})


def on_all_ports(path, text):
    return lambda tree: [tree.file(path.replace("#", str(port)), text) for port in range(8)]


NCCL = json.dumps([{"path": "/usr/lib64/libnccl.so.2", "version": "2.21.5", "by": "/usr/lib64"}])
ODD = {
    "MTU of RDMA ports": on_all_ports("/sys/class/net/eth#/mtu", "4200"),
    "firmware of RDMA ports": on_all_ports("/sys/class/infiniband/mlx5_#/fw_ver", "28.40.1000"),
    "flow control of RoCE ports": lambda tree: [
        tree.update(f"dcb eth{port}", pfc=[3, 4]) for port in range(8)
    ],
    "DSCP map of RoCE ports": lambda tree: [
        tree.update(f"dcb eth{port}", dscp={"26": 3}) for port in range(8)
    ],
    "trust mode of RoCE ports": on_all_ports("/sys/class/net/eth#/qos/trust", "pcp"),
    "reaction point of RoCE ports": on_all_ports("/sys/class/net/eth#/ecn/roce_rp/enable/5", "0"),
    "DSCP of CNPs of RoCE ports": on_all_ports("/sys/class/net/eth#/ecn/roce_np/cnp_dscp", "4"),
    "traffic class of RoCE ports": on_all_ports(
        "/sys/class/infiniband/mlx5_#/tc/1/traffic_class", "Global tclass=98"
    ),
    "files that set RoCE at boot": lambda tree: tree.call("files that set RoCE at the start", "[]"),
    "NCCL": lambda tree: tree.call("nccl-libraries", NCCL),
    "NCCL_DEBUG in /etc/nccl.conf": lambda tree: tree.file("/etc/nccl.conf", "NCCL_DEBUG=WARN"),
    "$NCCL_DEBUG": lambda tree: tree.update("environment", NCCL_DEBUG="WARN"),
    "NVIDIA kernel module": lambda tree: tree.file(
        "/proc/driver/nvidia/version", "NVRM version: 580.1"
    ),
    "kernel option iommu": lambda tree: tree.file(
        "/proc/cmdline", "root=UUID=a console=tty0 console=ttyS0"
    ),
    "TCP receive buffers": lambda tree: tree.file(
        "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 8388608"
    ),
    "mpirun": lambda tree: tree.call(
        "mpirun", json.dumps({"path": "/usr/bin/mpirun", "version": "4.1.7"})
    ),
    "MTU of other interfaces": lambda tree: tree.file("/sys/class/net/eno1/mtu", "9000"),
}


def test_nothing_differs_but_by_nature():
    assert nodes().differences == []


@pytest.mark.parametrize("fact", ODD)
def test_odd_node_is_named_first_and_alone(fact):
    report = nodes(ODD[fact])
    assert [
        (difference.fact, list(difference.odd.values())) for difference in report.differences
    ] == [(fact, [["gpu-3"]])]
    _, differences_of_facts, *_ = cluster_text(report, 200).split("\n\n")
    assert differences_of_facts.splitlines()[1] == "unlike the others: gpu-3 (1 fact)"
    assert differences_of_facts.splitlines()[2].startswith(f"WARN    {fact}: ")


def test_partition_that_one_node_lacks():
    report = nodes(
        on_all_ports("/sys/class/infiniband/mlx5_#/ports/1/pkeys/3", "0x8005"), layer="InfiniBand"
    )
    assert [(difference.fact, difference.odd) for difference in report.differences] == [
        ("partition keys of RDMA ports", {"0x8005, 0xffff": ["gpu-3"]})
    ]


def test_long_list_is_described_by_its_missing_entries():
    text = cluster_text(nodes(lambda tree: tree.drop("/sys/class/infiniband/mlx5_5")), 200)
    assert "WARN    RDMA ports: without mlx5_5 on gpu-3; mlx5_0, mlx5_1" in text


def test_value_of_each_node_for_itself_comes_last_and_short():
    facts = {f"gpu-{number}": {"serial": str(number), "MTU": "9000"} for number in range(9)}
    facts["gpu-1"]["MTU"] = "1500"
    lines = cluster_text(
        ClusterReport(
            differences=differences(facts), nodes=[CheckReport(host=name) for name in facts]
        ),
        200,
    )
    assert lines.splitlines()[4:] == [
        "WARN    MTU: 1500 on gpu-1; 9000 on the other 8",
        "WARN    serial: 0 to 8 (9 values) on gpu-[0-8]",
        "",
    ]


def test_ports_of_one_node_with_one_fault_are_together():
    text = cluster_text(
        nodes(ODD["traffic class of RoCE ports"], ODD["trust mode of RoCE ports"], checks=CHECKS),
        200,
    )
    assert text.count("[BW090 roce-trust]") == 1
    assert "WARN    mlx5_[0-7]: eth[0-7] " in text


def test_snapshots_are_named_by_host_where_it_is_unique(tmp_path):
    files = []
    for number, name in enumerate(("gpu-1", "gpu-2", "gpu-2")):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(
            snapshot(
                healthy()
                .file("/proc/sys/kernel/hostname", name)
                .file("/etc/nccl.conf", f"NCCL_IB_SL={number}")
                .source()
            )
        )
        files.append(str(path))
    (difference,) = cluster.recorded_nodes(files, []).differences
    assert list(difference.odd.values()) == [["gpu-1"], [files[1]], [files[2]]]


GARBAGE = [
    "",
    "\0\0\0",
    "nan",
    "-1",
    "99999999999999999999",
    "é\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    "a b c\n" * 50,
    "0x",
    "{}",
]


@pytest.mark.parametrize("seed", range(12))
def test_garbage_in_files_makes_no_check_fail(seed):
    tree, rng = healthy(), random.Random(seed)
    for path in list(tree.paths):
        if "text" in tree.paths[path] and rng.random() < 0.5:
            tree.file(path, rng.choice(GARBAGE))
    for name in list(tree.calls):
        if rng.random() < 0.3:
            tree.failing(name, "no such thing")
    machine = Machine(tree.source())
    for check in CHECKS:
        assert check.run(machine), check.row.name


@pytest.mark.parametrize("text", ["not json", "5", "null", "[null]", "\u00b2"])
def test_answers_of_calls_may_be_anything(text, tmp_path):
    """Facts and error counts of other nodes come from snapshots that anyone may have made."""
    tree = healthy()
    for name in list(tree.calls):
        tree.call(name, text)
    node = cluster.findings_here(tree.source(), CHECKS)
    assert node.facts["kernel"] and {finding.id for finding in node.report.findings} == {
        check.row.id for check in CHECKS
    }
    assert not [key for key in error_counts(Machine(tree.source())) if key[0] == "NVLink"]


def test_check_that_fails_is_unknown_and_the_others_go_on():
    broken = examine(healthy().call("nvml", "not json").source())
    assert all(
        finding.verdict is not Verdict.FAIL or finding.evidence for finding in broken.findings
    )
    assert {finding.id for finding in broken.findings} == {check.row.id for check in CHECKS}


def test_finding_of_several_nodes_is_printed_once():
    slow = healthy().file("/sys/class/net/eth3/mtu", "1500")
    nodes = {
        f"n{at}": cluster.findings_here((slow if at else healthy()).source(), CHECKS, f"n{at}")
        for at in range(3)
    }
    for name, node in nodes.items():
        node.report.host = name
    text = cluster_text(cluster.joined(nodes, {"n9": "no answer within the time limit"}), 100)
    assert text.count("eth3 has MTU 1500") == 1
    assert "on: n[1-2]" in text
    assert "MTU of RDMA ports: 9000 on n0; 9000 (7), 1500 (mlx5_3) on the other 2" in text
    assert "FAIL    n9: no answer within the time limit" in text
    assert text.startswith("4 nodes, 3 answered")


def test_line_for_a_monitor_has_nagios_codes():
    good, bad = (
        examine(healthy().source()),
        examine(healthy().file("/sys/class/net/eth3/mtu", "1500").source()),
    )
    assert brief(good)[0] == 0 and brief(good)[1].startswith("BUSBW OK - gpu-1: ")
    code, line = brief(bad)
    assert code == 1 and line.startswith("BUSBW WARNING - gpu-1: nic-mtu mlx5_3; ")
    assert "fail=0" in line
