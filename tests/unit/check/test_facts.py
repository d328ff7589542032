"""The facts of machines that nodes are compared by, and how they are compared, word for word."""

import copy
import json
from collections.abc import Callable

import msgspec
import pytest
from cases import CASES
from cases_gpu import without
from cases_nic import bonded, efa
from equipped import equipped
from healthy import healthy
from tree import Tree, environment

from busbw.check import cluster
from busbw.check.accepted_facts import SHOWN_BY, is_accepted, note_accepted
from busbw.check.cluster import differences, findings_here
from busbw.check.facts import facts, merged
from busbw.check.machine import Machine
from busbw.check.registry import BY_NAME, examine, find, run
from busbw.check.types import CheckReport, MutedFinding, NodeFindings
from busbw.core.finding import Verdict
from busbw.host.limited import GIVEN_UP
from busbw.launch.remote import CommandResult

RELEASE = 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\nVERSION_ID="24.04"'


def variables() -> Tree:
    """A server with variables of a job, of one rank, and of NCCL's file."""
    tree = healthy().file("/etc/nccl.conf", "NCCL_DEBUG=WARN").file("/etc/os-release", RELEASE)
    environment(
        NCCL_ALGO="Ring",
        NCCL_HOSTID="gpu-1",
        SLURM_NODEID="3",
        OMPI_COMM_WORLD_RANK="5",
        OMPI_MCA_plm_rsh_agent="ssh",
    )(tree)
    return tree


def interfaces() -> Tree:
    """A server with a slow second interface, one that is down, a virtual one, and a container's."""
    tree = bonded()
    for name, rate, state in (("eno2", "10000", "up"), ("eno3", "25000", "down")):
        tree.files(f"/sys/class/net/{name}", speed=rate, operstate=state, mtu="1500").link(
            f"/sys/class/net/{name}/device", "../0000:31:00.1"
        )
    tree.files("/sys/class/net/vxlan0", operstate="up", mtu="1450").files(
        "/sys/class/net/docker0", operstate="up", mtu="1500"
    )
    return tree


def plain() -> Tree:
    """Without RDMA: a cloud's machine whose driver and MPI do not answer."""
    tree = (
        healthy(gpus=0, ports=0)
        .failing("nvml", "the driver does not answer")
        .files("/sys/class/dmi/id", sys_vendor="QEMU")
    )
    return tree.call(
        "mpirun", json.dumps({"path": "/usr/bin/mpirun", "error": "exit code 1"})
    ).file("/proc/modules", "")


MACHINES = {
    "the healthy server": healthy,
    "InfiniBand": lambda: healthy(layer="InfiniBand"),
    "all that a server may have": equipped,
    "variables": variables,
    "interfaces": interfaces,
    "without RDMA": plain,
    "EFA": efa,
    "nothing can be read": Tree,
    "one port is older": (
        lambda: (
            healthy()
            .file("/sys/class/infiniband/mlx5_3/fw_ver", "28.40.1000")
            .drop("/sys/class/net/eth5/mtu")
        )
    ),
    "GIDs": (
        lambda: healthy().file("/sys/class/infiniband/mlx5_3/ports/1/gids/3", "0000:" * 7 + "0000")
    ),
    "what sets RoCE is not known": (
        lambda: healthy().failing("files that set RoCE at the start", "permission denied")
    ),
}


def test_facts_of_each_machine(golden: Callable[[str, str], None]) -> None:
    usual: dict[str, str] = {}
    lines = []
    for title, make in MACHINES.items():
        node_facts = facts(Machine(make().source()))
        lines += [
            title,
            *(
                f"  {name}: {value}"
                for name, value in node_facts.items()
                if usual.get(name) != value
            ),
        ]
        lines += [f"  no {name}" for name in usual if node_facts and name not in node_facts]
        usual = usual or node_facts
    golden("checks/facts.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, ""),
        ({"a": "1"}, "1"),
        ({"a": "1", "b": "1"}, "1"),
        ({"a": "1", "b": "2", "c": "2"}, "2 (2), 1 (a)"),
        ({"a": "", "b": "2", "c": "2"}, "2 (2), none (a)"),
        ({"a": "", "b": "", "c": "2", "d": "3"}, "none (2), 2 (c), 3 (d)"),
    ],
)
def test_values_of_parts_as_one_text(values, text):
    assert merged(values) == text


@pytest.mark.parametrize(
    ("kernels", "usual", "hosts", "odd"),
    [
        ("112", "1", 2, {"2": ["c"]}),
        ("1122", "", 0, {"1": ["a", "b"], "2": ["c", "d"]}),
        ("11223", "", 0, {"1": ["a", "b"], "2": ["c", "d"], "3": ["e"]}),
        ("11 ", "1", 2, {"(none)": ["c"]}),
    ],
)
def test_a_value_is_usual_with_more_than_half_of_the_nodes(kernels, usual, hosts, odd):
    nodes = {
        name: {"kernel": kernel} if kernel != " " else {}
        for name, kernel in zip("abcde", kernels, strict=False)
    }
    (difference,) = differences(nodes)
    assert (difference.fact, difference.usual, difference.usual_hosts, difference.odd) == (
        "kernel",
        usual,
        hosts,
        odd,
    )


def test_the_fact_with_the_fewest_odd_nodes_is_first():
    nodes = {
        name: {"many": str(number), "few": "1", "same": "1"} for number, name in enumerate("abcd")
    }
    nodes["b"]["few"] = "2"
    assert [difference.fact for difference in differences(nodes)] == ["few", "many"]


@pytest.mark.parametrize(
    ("limit_s", "watch_s", "each_s", "whole_s"),
    [
        (60, 0, "50", 60),
        (20, 0, "10", 20),
        (19, 0, "9.5", 19),
        (60, 10, "25", 70),
        (12, 10, "3", 22),
    ],
)
def test_hosts_have_time_to_answer_after_one_or_two_readings(
    monkeypatch, limit_s, watch_s, each_s, whole_s
):
    calls = []

    def run(hosts, command, limit_s, stdin):
        calls.append((tuple(hosts), command, limit_s, stdin))
        yield CommandResult(
            "h1",
            0,
            msgspec.json.encode(findings_here(healthy(gpus=0, ports=0).source(), [], "h1")),
            "",
        )
        yield CommandResult("h2", 0, b"x" * 80, "")
        yield CommandResult("h3", 255, b"", "no route to host")
        yield CommandResult("h4", None, b"", "", "no answer within the time limit")

    monkeypatch.setattr(cluster.remote, "run", run)
    report = cluster.ask(
        ["h1", "h2", "h3", "h4"], ["--only", "nic-mtu"], limit_s, watch_s, b"given"
    )
    ((hosts, command, limit, stdin),) = calls
    assert (hosts, limit, stdin) == (("h1", "h2", "h3", "h4"), whole_s, b"given")
    assert command == cluster.remote.busbw(
        "check", "--node", "--limit", each_s, "--only", "nic-mtu"
    )
    assert [node.host for node in report.nodes] == ["gpu-1"]
    assert report.silent == {
        "h2": f"unexpected answer: '{'x' * 60}'",
        "h3": "exit code 255: no route to host",
        "h4": "no answer within the time limit",
    }


@pytest.mark.parametrize(
    ("names", "names_found"),
    [
        (("nic-mtu",), ["nic-mtu", "reads-answer"]),
        (("nic-mtu", "reads-answer"), ["nic-mtu", "reads-answer"]),
    ],
)
def test_reads_without_an_answer_are_reported_for_any_choice_of_checks(names, names_found):
    silent = healthy(ports=1).call(
        GIVEN_UP, '{"silent": ["/mnt/data: did not answer within 5 s"], "over": "60 s were over"}'
    )
    report = examine(silent.source(), [find(name) for name in names])
    assert [(finding.name, finding.verdict) for finding in report.findings] == [
        ("nic-mtu", Verdict.PASS),
        ("reads-answer", Verdict.FAIL),
        ("reads-answer", Verdict.UNKNOWN),
    ]
    assert sorted({finding.name for finding in report.findings}) == names_found
    assert [
        finding.name for finding in examine(healthy(ports=1).source(), [find("nic-mtu")]).findings
    ] == ["nic-mtu"]


def test_a_check_that_cannot_parse_what_it_read_is_unknown():
    (finding,) = run(
        find("disk-space"), Machine(healthy().call("file systems", '{"/": 5}').source())
    )
    assert (finding.id, finding.name, finding.layer, finding.verdict) == (
        find("disk-space").row.id,
        "disk-space",
        "limits",
        Verdict.UNKNOWN,
    )
    assert finding.message.startswith("the check could not parse what it read: ")


_BAD = (Verdict.FAIL, Verdict.WARN)
ELSEWHERE = {"nic-link-layer": "files that set RoCE at boot"}


def test_a_muted_check_accepts_the_facts_that_show_its_fault():
    """As the cases of the checks change them, of which ELSEWHERE has facts of another part."""
    names = {name for checks in SHOWN_BY.values() for name in checks}
    assert names <= set(BY_NAME)
    for name in sorted(names & set(CASES)):
        case = CASES[name]
        tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
        before = _node(Machine(copy.deepcopy(tree).source()), name)
        change(tree)
        after = _node(Machine(tree.source()), name)
        different = {
            fact
            for fact in {**before.facts, **after.facts}
            if before.facts.get(fact) != after.facts.get(fact)
        }
        left = {fact for fact in different if not is_accepted(fact, before, after)}
        assert left <= {ELSEWHERE.get(name)}, name


def _node(machine: Machine, mute: str) -> NodeFindings:
    """The node whose only findings are those of one check, all muted."""
    bad = [finding for finding in find(mute).run(machine) if finding.verdict in _BAD]
    muted = [MutedFinding(finding=one, reason="known", until="", where="") for one in bad]
    node = NodeFindings(report=CheckReport(host="gpu-1", muted=muted), facts=facts(machine))
    note_accepted(node, machine)
    return node


def test_a_fact_that_the_muted_fault_has_taken_away_is_accepted():
    tree = healthy()
    before = _node(Machine(copy.deepcopy(tree).source()), "pcie-iommu")
    tree.file("/proc/cmdline", "ro intel_iommu=on")
    CASES["pcie-iommu"](tree)
    after = _node(Machine(tree.source()), "pcie-iommu")
    for fact in ("kernel option iommu", "kernel option intel_iommu"):
        assert before.facts.get(fact) != after.facts.get(fact) and is_accepted(fact, before, after)


def test_a_fact_shows_also_the_fault_that_is_not_muted():
    """Two GPUs are lost, one of which a mute accepts."""
    tree = healthy()
    without(5)(tree)
    machine = Machine(tree.source())
    node = _node(machine, "gpu-count")
    assert node.accepted["GPUs"] == [""]
    counted, node.accepted = node.report.muted[0].finding, {}
    node.report.findings = [counted]
    note_accepted(node, machine)
    assert not node.accepted
