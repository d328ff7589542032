"""Faults of many nodes: each once, with its hosts and values as ranges, and what it causes below."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.check.alike import HostText, for_any_host, merged_text, pattern
from busbw.check.brief import brief_cluster
from busbw.check.causes import CAUSES, problems
from busbw.check.cluster import differences
from busbw.check.cluster_text import cluster_text
from busbw.check.groups import faults
from busbw.check.registry import BY_NAME, ROWS
from busbw.check.text import listing
from busbw.check.text import text as machine_text
from busbw.check.trend import text as trend_text
from busbw.check.trend.types import Growth, TrendReport
from busbw.check.types import CheckReport, ClusterReport, Evidence, ReportedFinding, overall
from busbw.core.finding import Verdict

HOSTS = [f"gpu{number:03}" for number in range(1, 65)]


def finding(
    check: str, verdict: Verdict, subject: str, message: str, **more: object
) -> ReportedFinding:
    row = BY_NAME[check]
    fixed = {"id": row.id, "name": row.name, "layer": row.layer.value}
    return ReportedFinding(**fixed, verdict=verdict, subject=subject, message=message, **more)


def loopback(host: str) -> ReportedFinding:
    return finding(
        "hostname-loopback",
        Verdict.WARN,
        "",
        f"/etc/hosts gives {host} the address 127.0.1.1",
        evidence=(Evidence("/etc/hosts", f"127.0.1.1 {host}", f"an address of {host}"),),
        fix=f"in /etc/hosts, replace 127.0.1.1 in the line of {host}",
    )


def errors(port: int, count: int) -> ReportedFinding:
    noun = "error" if count == 1 else "errors"
    message = f"{count} {noun} since the driver was loaded"
    fix = f"reseat the cable of mlx5_{port}"
    seen = (Evidence("symbol_error", str(count), "0"),)
    warn = Verdict.WARN
    return finding("nic-symbol-errors", warn, f"mlx5_{port}", message, evidence=seen, fix=fix)


GOOD = finding("gpu-count", Verdict.PASS, "", "8 GPUs on PCI and in NVML")
DOWN = finding("nic-state", Verdict.FAIL, "mlx5_5", "it is DOWN", fix="rdma link show mlx5_5")
NO_LINK = finding("nic-physical-state", Verdict.WARN, "mlx5_5", "no link", fix="ethtool eth5")
LOST = finding("gpu-count", Verdict.FAIL, "GPU 2", "the GPU at 0000:52:00.0 does not answer NVML")
UNJUDGED = [
    finding(name, Verdict.UNKNOWN, "GPU 2", "NVML cannot read it: GPU is lost")
    for name in ("gpu-persistence", "gpu-ecc-mode")
]


def cluster(
    findings: dict[str, list[ReportedFinding]], verdict: Verdict | None = None
) -> ClusterReport:
    nodes = [
        CheckReport(host=host, findings=found, verdict=verdict or overall(found))
        for host, found in findings.items()
    ]
    return ClusterReport(differences=[], nodes=nodes)


def test_a_fault_with_the_name_of_its_host_is_one_entry():
    text = cluster_text(cluster({host: [loopback(host)] for host in HOSTS}))
    assert text.splitlines()[4:] == [
        "WARN    /etc/hosts gives HOST the address 127.0.1.1  [BW202 hostname-loopback]",
        "        on: all nodes",
        "        seen on gpu001: /etc/hosts: 127.0.1.1 gpu001, expected an address of gpu001",
        "        fix: in /etc/hosts, replace 127.0.1.1 in the line of HOST",
    ]


def test_counters_that_differ_are_a_range_with_the_largest_and_their_hosts():
    found = {host: [GOOD] for host in HOSTS}
    for host, port, count in (
        ("gpu002", 3, 1),
        ("gpu003", 3, 120),
        ("gpu004", 3, 7),
        ("gpu060", 5, 9),
    ):
        found[host] = [errors(port, count)]
    assert cluster_text(cluster(found)).splitlines()[:1] + cluster_text(
        cluster(found)
    ).splitlines()[5:] == [
        "64 nodes, 64 answered: 4 warn, 60 pass",
        "WARN    mlx5_[3,5]: 1 to 120 errors since the driver was loaded  [BW077 nic-symbol-errors]",
        "        on: gpu[002-004] (mlx5_3), gpu060 (mlx5_5)",
        "        largest: 120 on gpu003, 9 on gpu060, 7 on gpu004",
        "        seen on gpu003: symbol_error: 120, expected 0",
        "        fix on gpu003: reseat the cable of mlx5_3",
    ]


def test_parts_of_one_node_with_one_fault_are_one_entry():
    found = [errors(port, 40 + port) for port in (7, 6, 5, 4, 3, 2, 1, 0)]
    expected = [
        "gpu-1: 1 check: 1 warn",
        "",
        "WARN    mlx5_[0-7]: 40 to 47 errors since the driver was loaded  [BW077 nic-symbol-errors]",
        "        largest: 47 on mlx5_7, 46 on mlx5_6, 45 on mlx5_5",
        "        seen: symbol_error: 47, expected 0",
        "        fix: reseat the cable of mlx5_7; likewise mlx5_[0-6]",
    ]
    assert machine_text(CheckReport(host="gpu-1", findings=found)).splitlines() == expected


def test_where_nothing_was_judged_the_report_says_why():
    skipped = finding("nic-mtu", Verdict.SKIP, "", "no RoCE port")
    alone = machine_text(CheckReport(host="gpu-1", findings=[skipped]))
    said = "SKIP    no RoCE port  [BW070 nic-mtu]\n"
    assert alone == f"gpu-1: 1 check: 1 skip\n\n{said}"
    several = cluster_text(cluster({"h1": [skipped], "h2": [skipped], "h3": [GOOD, skipped]}))
    assert several.endswith(f"\n{said}        on: h[1-2]\n")


def test_what_has_one_cause_is_under_it():
    found = {host: [GOOD] for host in HOSTS}
    found["gpu040"] = [LOST, *UNJUDGED]
    found["gpu060"] = [DOWN, NO_LINK]
    text = cluster_text(cluster(found))
    assert text.startswith("64 nodes, 64 answered: 2 fail, 62 pass\nfail: gpu[040,060]\n")
    assert "        on: gpu040\n        so not judged: gpu-persistence, gpu-ecc-mode\n" in text
    assert "        cause: mlx5_5: no link  [BW062 nic-physical-state]\n" in text
    assert "        fix: rdma link show mlx5_5\n        fix: ethtool eth5\n" in text
    assert text.count("FAIL") == 2 and "UNKNOWN" not in text and "WARN" not in text


def test_a_fault_elsewhere_is_no_detail():
    other = msgspec.structs.replace(NO_LINK, subject="mlx5_50")
    assert [problem.finding for problem in problems([DOWN, other])] == [DOWN, other]
    alone = msgspec.structs.replace(UNJUDGED[0], subject="GPU 22")
    assert [problem.finding for problem in problems([LOST, alone])] == [LOST, alone]


def test_a_card_that_is_missing_explains_the_gpu_without_one():
    far = finding("pcie-path", Verdict.WARN, "GPU 3", "the nearest is mlx5_0")
    for verdict, name in ((Verdict.FAIL, "0000:9c:00.0"), (Verdict.WARN, "")):
        gone = finding("nic-missing", verdict, name, "PCI no longer shows it")
        assert [problem.finding for problem in problems([far, gone])] == [gone]


def test_the_table_of_causes_names_checks():
    assert not [check for check in CAUSES if check not in BY_NAME]
    assert not [check for causes in CAUSES.values() for check in causes if check not in BY_NAME]


IDS = st.sampled_from(sorted({*CAUSES, "BW001", "BW061", "BW070", "BW115"}))
FINDINGS = st.builds(
    finding,
    IDS,
    st.sampled_from([Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS]),
    st.sampled_from(["", "GPU 2", "mlx5_5", "eth5"]),
    st.sampled_from(["eth5 is bad", "GPU 2 is bad", "it is bad"]),
)


@given(st.lists(FINDINGS, max_size=12))
def test_no_finding_is_lost_or_hides_a_graver_one(findings):
    found = problems(findings)
    shown = [one for problem in found for one in (problem.finding, *problem.details)]
    assert sorted(map(id, shown)) == sorted(map(id, findings))
    order = [Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN]
    for problem in found:
        for detail in problem.details:
            assert order.index(problem.finding.verdict) <= order.index(detail.verdict)


def many_faults() -> ClusterReport:
    checks = [name for name in BY_NAME if name.startswith("kernel-")]
    assert len(checks) == 9
    found = [finding(name, Verdict.WARN, "", f"{name} is bad", fix="mend it") for name in checks]
    return cluster(dict.fromkeys(HOSTS, found))


def test_many_faults_are_listed_in_short_first_and_a_file_has_all():
    text = cluster_text(many_faults())
    assert text.count("[BW117 kernel-thp]") == 2 and text.count("fix: mend it") == 9


def test_a_terminal_without_room_shows_the_short_list_and_how_to_see_all():
    text = cluster_text(many_faults(), 80, 30)
    assert text.count("\n") < 30 and text.count("is bad") == 9 and "fix: mend it" not in text
    assert text.endswith("the same command with `| less`, or with `--only\n  kernel-removeipc`\n")
    assert cluster_text(many_faults(), 80, 400).count("fix: mend it") == 9


def test_what_has_no_data_is_one_line_on_a_terminal_without_room():
    unread = [
        finding(name, Verdict.UNKNOWN, "", f"{name} cannot be read", optional=True)
        for name in ("kernel-thp", "memlock", "cpu-online")
    ]
    report = cluster({host: [loopback(host), *unread] for host in HOSTS})
    text = cluster_text(report, 80, 12)
    assert "        fix: in /etc/hosts" in text
    assert "NO DATA for 3 checks\n        on: all nodes\n" in text
    assert cluster_text(report, 80, 40).count("cannot be read") == 3
    assert cluster_text(cluster({host: [] for host in HOSTS}), 80, 1).startswith("64 nodes")


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_list_of_hosts_is_broken_at_commas(width):
    odd = {host: [errors(3, 5)] if at % 2 else [GOOD] for at, host in enumerate(HOSTS)}
    text = cluster_text(cluster(odd), width)
    assert max(map(len, text.splitlines())) <= width
    assert f"gpu[{','.join(host[3:] for host in HOSTS[1::2])}]" in "".join(text.split())


def test_facts_that_one_node_lacks_are_one_line():
    facts = {host: {"kernel": "6.8", "GPUs": "8", "NCCL": "2.27", "MTU": "9000"} for host in HOSTS}
    facts["gpu002"] = {"MTU": "1500"}
    report = ClusterReport(differences=differences(facts), nodes=cluster({"a": [GOOD]}).nodes)
    assert cluster_text(report).splitlines()[2:6] == [
        "4 facts not the same on all nodes",
        "unlike the others: gpu002 (4 facts)",
        "WARN    MTU: 1500 on gpu002; 9000 on the other 63",
        "WARN    3 facts are missing on gpu002: kernel, GPUs, NCCL",
    ]


def test_programs_get_each_fault_with_its_hosts():
    found = {host: [GOOD] for host in HOSTS}
    found |= {"gpu040": [LOST, *UNJUDGED], "gpu002": [errors(3, 1)], "gpu003": [errors(3, 5)]}
    first, second = faults(cluster(found).nodes)
    assert (first.id, first.hosts, first.under) == (
        "BW001",
        ["gpu040"],
        ["gpu-persistence", "gpu-ecc-mode"],
    )
    assert second.hosts == ["gpu002", "gpu003"]
    assert second.message == "mlx5_3: 1 or 5 errors since the driver was loaded"


def test_tables_fit_80_columns():
    growth = Growth(
        host="gpu-1.rack12.cluster.example",
        kind="port",
        link="mlx5_3 eth3",
        counter="excessive_buffer_overrun_errors",
        by=123456,
        hours=24.0,
        at_least=True,
    )
    trend = TrendReport(hosts=[growth.host], hours=24.0, links={"port": 8}, odd=[], grown=[growth])
    for table in (listing(ROWS, 80), trend_text.text(trend, 80)):
        assert max(map(len, table.splitlines())) <= 80


def test_many_nodes_are_one_line_for_a_monitor():
    found = {host: [GOOD] for host in HOSTS}
    found |= {
        "gpu040": [LOST, finding("gpu-count", Verdict.FAIL, "", "NVML lists 7 GPUs")],
        "gpu060": [DOWN],
        "gpu061": [DOWN],
        "gpu062": [errors(1, 5)],
    }
    report = cluster(found)
    report.silent = {"gpu065": "no answer", "gpu066": "no answer"}
    assert brief_cluster(report, Verdict.FAIL) == (
        2,
        "BUSBW CRITICAL - 66 nodes: no answer from gpu[065-066]; nic-state on gpu[060-061];"
        " gpu-count on gpu040; 3 fail; 1 warn; 60 pass"
        " | nodes=66 fail=3 unknown=0 warn=1 pass=60 silent=2 unreadable=0\n",
    )


def test_values_of_one_text():
    def merged(*texts: str) -> str:
        said = [HostText(f"n{at}.example", text) for at, text in enumerate(texts)]
        assert len(set(map(pattern, said))) == 1
        return merged_text(said)

    assert merged("n0 has 3 ports", "n1 has 1 port") == "HOST has 1 or 3 ports"
    assert merged("10 s", "2 min", "90 s") == "10 s to 2 min"
    assert merged("up 10 s", "up 120 s", "up 90 s") == "up 10 to 120 s"
    assert merged("at 10.0.0.1", "at 10.0.0.2") == "at 10.0.0.[1-2]"
    assert merged("eth3 is up", "eth5 is up", "eth4 is up") == "eth[3-5] is up"
    assert merged("eth3 is up", "ib0 is up") == "eth3 or ib0 is up"
    assert merged("driver 550.54.15", "driver 535.104.05") == "driver 550.54.15 or 535.104.05"
    assert merged("NCCL 2.28.9", "NCCL 2.28.7", "NCCL 2.27.5") == "NCCL 2.28.9, 2.28.7 or 2.27.5"
    assert merged("GPU 0000:1b:00.0", "GPU 0000:52:00.0") == "GPU 0000:1b:00.0 or 0000:52:00.0"
    long = [f"no GPU at 0000:{number}b:00.0, though" for number in range(1, 6)]
    assert merged(*long) == "no GPU at 0000:1b:00.0 and 4 more, though"
    assert pattern(HostText("a", "Xid 79 (off the bus)")) != pattern(HostText("b", "Xid 48 (ECC)"))


@given(st.text(max_size=30), st.sampled_from(["", "gpu1", "a.b", "7", "x-1.y"]))
def test_any_text_is_itself(text, host):
    said = HostText(host, text)
    assert merged_text([said, said]) == text == for_any_host([said, said])
    assert pattern(said) == pattern(said)
