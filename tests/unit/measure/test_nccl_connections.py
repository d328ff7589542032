"""How ranks are connected is read from NCCL's log, alone or between the lines of nccl-tests."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.finding import Verdict
from busbw.core.ran import LoggedConnections, NcclConnection
from busbw.core.result import Result
from busbw.core.topology import Host, Nic, Topology
from busbw.measure.formats import nccl_connections, read_nccl_tests_text
from busbw.model import transport_findings
from busbw.stats.compare import compare

HEAD = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 166 on      node1 device  0 [0000:06:00] {gpu}
#  Rank  1 Group  0 Pid 170 on      node2 device  0 [0000:06:00] {gpu}
"""
TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    35.15    0.23    0.23       0
{inside}       16384          4096     float     sum      -1    31.67    0.52    0.52       0
# Avg bus bandwidth    : 0.375
"""
USING = (
    "node1:166:166 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB e:1<0>"
)


def said(*messages: str, host: str = "node1") -> str:
    return "".join(f"{host}:166:180 [0] NCCL INFO {message}\n" for message in messages)


def log_result(lines: str, gpu: str = "NVIDIA H200") -> Result:
    return read_nccl_tests_text.read(HEAD.format(gpu=gpu) + TABLE.format(inside=lines))


SOCKETS = said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")


@pytest.mark.parametrize(
    ("line", "connection"),
    [
        (
            "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
            NcclConnection(0, 1, "P2P/CUMEM", None, 1),
        ),
        ("Channel 07 : 0[3b000] -> 1[af000] via P2P/IPC", NcclConnection(0, 1, "P2P/IPC", None, 1)),
        (
            "Channel 00/0 : 2[2] -> 1[1] via P2P/direct pointer/read",
            NcclConnection(2, 1, "P2P/direct pointer", None, 1),
        ),
        (
            "Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/1[1]/read",
            NcclConnection(0, 3, "P2P/indirect", None, 1),
        ),
        ("Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", NcclConnection(0, 1, "SHM/CE", None, 1)),
        ("Ring 00 : 7 -> 8 [send] via NET/IB/0/GDRDMA", NcclConnection(7, 8, "NET/IB", True, 1)),
        (
            "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3(6)/GDRDMA(PCI)/Shared",
            NcclConnection(7, 8, "NET/IB", True, 1),
        ),
        (
            "Channel 00/0 : 7[7] -> 8[0] [receive] via NET/AWS Libfabric/0/GDRDMA",
            NcclConnection(7, 8, "NET/AWS Libfabric", True, 1),
        ),
        (
            "Channel 01/1 : 0[0] -> 1[0] [send] via NET/IB/0/Shared",
            NcclConnection(0, 1, "NET/IB", False, 1),
        ),
        (
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
            NcclConnection(0, 1, "NET/Socket", None, 1),
        ),
    ],
)
def test_lines_of_all_releases(line: str, connection: NcclConnection) -> None:
    for label in ("", "[1,0]<stdout>:", " 0: ", "[2026-09-01 10:00:00] "):
        assert nccl_connections.read(f"{label}{said(line)}") == LoggedConnections([connection])


def test_both_ends_of_a_connection_count_its_channels_once_and_name_their_devices() -> None:
    text = (
        USING
        + "\nnode2:170:170 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/IB; OOB e:1<0>\n"
        + said(
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1/GDRDMA",
            "Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/7/GDRDMA",
        )
        + said(
            "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA",
            "Channel 01/0 : 0[0] -> 1[0] [receive] via NET/IB/0",
            host="node2",
        )
    )
    (connection,) = (ran := nccl_connections.read(text) or LoggedConnections([])).connections
    assert (connection.channels, connection.gdr) == (2, False), "one end does not use GDR"
    assert connection.devices == ["node1:mlx5_1", "node2:mlx5_2"], "a merged device has no name"
    assert ran.rdma == {"node1": ["mlx5_0", "mlx5_1"], "node2": ["mlx5_2"]}


def test_a_recorded_log(recorded: Path) -> None:
    ran = nccl_connections.read((recorded / "patterns/nccl_2.28_rank_0.log").read_text())
    assert ran == LoggedConnections([NcclConnection(0, 1, "P2P/CUMEM", None, 32)])
    assert nccl_connections.read((recorded / "patterns/clog_v1.log").read_text()) is None


@pytest.mark.parametrize(
    ("lines", "gpu", "findings"),
    [
        (said("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"), "H200", {"transport"}),
        (said("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"), "H200", {"transport_shm"}),
        (said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"), "H200", {"transport_gdr"}),
        (said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"), "NVIDIA GB10", {"transport"}),
        (said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"), "H200", {"transport"}),
        (said("Channel 0 : 0 -> 1 [send] via NET/IBext_v9/0"), "H200", {"transport_gdr"}),
        (said("Channel 0 : 0 -> 1 [send] via NET/AWS Libfabric/0"), "H200", {"transport_gdr"}),
        (said("Channel 0 : 0 -> 1 [send] via NET/Libfabric/0"), "H200", {"transport_gdr"}),
        (said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/busbw/0"), "H200", {"transport"}),
        (said("Channel 00/0 : 0[0] -> 1[0] [send] via NET/FastSocket/0"), "H200", {"transport"}),
        (SOCKETS, "H200", {"transport"}),
        (f"{USING}\n{SOCKETS}", "H200", {"transport_socket"}),
        (f"{USING.replace('NET/IB', 'NET/IBext_v9')}\n{SOCKETS}", "H200", {"transport_socket"}),
        (f"{USING.replace('node1', 'node3')}\n{SOCKETS}", "H200", {"transport"}),
        ("", "H200", set()),
    ],
)
def test_fallbacks_are_found_in_logs_of_nccl_tests(
    lines: str, gpu: str, findings: set[str]
) -> None:
    result = log_result(lines, gpu)
    assert {row.id for row in result.findings if row.id.startswith("transport")} == findings
    assert len(result.rows) == 2
    assert (result.ran is not None) == bool(lines)


@pytest.mark.parametrize(
    ("line", "variables", "chosen"),
    [
        ("via SHM/direct", {"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE=1"),
        ("via SHM/direct", {"NCCL_P2P_LEVEL": "NVL"}, "NCCL_P2P_LEVEL=NVL"),
        ("via SHM/direct", {"NCCL_P2P_DISABLE": " 0", "NCCL_P2P_LEVEL": "SYS"}, ""),
        ("via SHM/direct", {"NCCL_IB_DISABLE": "1"}, ""),
        (
            "[send] via NET/IB/0",
            {"NCCL_NET_GDR_LEVEL": "PIX", "NCCL_DMABUF_ENABLE": "0"},
            "NCCL_NET_GDR_LEVEL=PIX and NCCL_DMABUF_ENABLE=0",
        ),
        ("[send] via NET/IB/0", {"NCCL_NET_GDR_LEVEL": "5", "NCCL_DMABUF_ENABLE": "1"}, ""),
        ("[send] via NET/Socket/0", {"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1"),
    ],
)
def test_the_fix_of_a_fallback_names_the_variables_that_exclude_the_faster_transport(
    line: str, variables: dict[str, str], chosen: str
) -> None:
    result = log_result(said(f"Channel 00/0 : 0[0] -> 1[0] {line}"))
    result.environment = variables
    result.topology = Topology(hosts=[Host("node1", nics=[Nic("mlx5_0", "ib")])])
    (finding,) = transport_findings.findings(result)
    named, _, _ = finding.fix.rpartition("; otherwise ")
    expected = f"try without {chosen}, which the run set" if chosen else ""
    assert (finding.verdict, named) == (Verdict.WARN, expected)


def test_sockets_of_an_excerpt_without_its_devices_are_found() -> None:
    excerpt = HEAD.splitlines(keepends=True)[0] + TABLE.format(inside=f"{USING}\n{SOCKETS}")
    result = read_nccl_tests_text.read(excerpt)
    assert not result.world.devices
    (message,) = (row.message for row in result.findings if row.id == "transport_socket")
    assert message == "sockets between ranks 0 and 1, though node1 has mlx5_0, mlx5_1"


def test_sockets_that_were_chosen_are_no_fallback() -> None:
    result = log_result(SOCKETS)
    result.environment = {"NCCL_NET": "Socket"}
    result.topology = Topology(hosts=[Host("node1", nics=[Nic("mlx5_0", "ib")])])
    assert [row.verdict for row in transport_findings.findings(result)] == [Verdict.PASS]


def test_many_pairs_are_counted() -> None:
    lines = [f"Channel 00 : {rank}[0] -> {rank + 1}[1] via SHM/direct" for rank in range(8)]
    (finding,) = (row for row in log_result(said(*lines)).findings if row.id == "transport_shm")
    assert "between ranks 0 and 1, 1 and 2, 2 and 3 and 5 more pairs:" in finding.message


def test_a_log_of_several_tables_does_not_say_which_one_its_connections_are_of() -> None:
    lines = said("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    one = HEAD.format(gpu="H200") + TABLE.format(inside=lines)
    assert read_nccl_tests_text.read(one + one).ran is None


def test_compare_says_where_connections_differ() -> None:
    p2p, shm, silent = (
        log_result(lines)
        for lines in (
            said("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
            said("Channel 00 : 0[0] -> 1[1] via SHM/direct"),
            "",
        )
    )
    note = "ranks are connected by P2P/CUMEM in A, SHM/direct in B"
    assert note in compare([("a", p2p)], [("b", shm)]).notes
    for other in (p2p, silent):
        notes = compare([("a", p2p)], [("b", other)]).notes
        assert not any("connected" in text for text in notes)


PARTS = (
    "node1:166:180 [0] NCCL INFO ",
    "Channel 00/0 : ",
    "0[0] -> 1[1] ",
    "[send] ",
    "via NET/IB/",
    "via P2P/",
    "NET/IB : Using ",
    "[0]mlx5_0:1/IB ",
    "9" * 20,
    "/GDRDMA",
    "(",
    "\n",
    "\0",
    "٣",
)


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_damaged_lines_do_no_harm(parts: list[str]) -> None:
    ran = nccl_connections.read("".join(parts))
    assert ran is None or all(row.channels for row in ran.connections)
