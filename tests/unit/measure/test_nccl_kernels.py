"""What NCCL ran each size with comes from NCCL's log, and from nccl-tests with -U."""

import re

import msgspec
import pytest
from test_nccl_connections import log_result, said

from busbw.cli.main import guarded
from busbw.core.ran import NcclKernel
from busbw.measure.formats import nccl_kernels
from busbw.report.read import read
from busbw.report.registry import view
from busbw.stats.compare import compare

RING = said("AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}")
TREE = said("AllReduce: 16384 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={2..17}")
SYMMETRIC = said(
    "AllReduce [Symmetric]: 16384 Bytes -> Kernel AllReduce_AGxLL_R nchannels 2 nthreads 512 nWorks 1"
)
OLD_SYMMETRIC = said(
    "AllReduce [Symmetric]: 16384 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 8 nthreads 512"
)
BROADCAST = said("Broadcast: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}")


@pytest.mark.parametrize(
    ("lines", "kernel"),
    [
        (RING, NcclKernel("Ring", "LL", 2)),
        (TREE, NcclKernel("NVLSTree", "Simple", 16)),
        (said("AllReduce: 16384 Bytes -> Algo 1 proto 2 time 86.5"), NcclKernel("Ring", "Simple")),
        (said("16384 Bytes -> Algo 0 proto 1 time 25.2"), NcclKernel("Tree", "LL128")),
        (SYMMETRIC, NcclKernel("Symmetric", "", 2, "AllReduce_AGxLL_R")),
        (OLD_SYMMETRIC, NcclKernel("Symmetric", "", 8, "AllReduce_RSxLD_AGxST")),
        (
            said("AllReduce [Copy Engine]: 16384 Bytes -> cudaMemcpy MC"),
            NcclKernel("CopyEngine", ""),
        ),
        (
            said("AllReduce [Hierarchical CE]: 16384 Bytes -> RMA proxy + CE"),
            NcclKernel("CopyEngine", ""),
        ),
        (said("AllReduce [New]: 16384 Bytes -> Algo RING proto LL"), None),
        (said("AllReduce [Symmetric]: 16384 Bytes -> Kernel"), None),
        (RING + TREE + TREE, NcclKernel("NVLSTree", "Simple", 16)),
        (BROADCAST, None),
        (said("AllReduce: 16384 Bytes -> Algo 9 proto 0 time 1"), None),
        (said("AllReduce: 16384 Bytes -> Algo N/A proto LL"), None),
    ],
)
def test_rows_of_a_log_have_the_kernel_of_their_size(lines: str, kernel: NcclKernel | None) -> None:
    assert [row.ran for row in log_result(lines).rows] == [None, kernel]


@pytest.mark.parametrize("channels", ["", "N/A", "-1", "9" * 5, "٣"])
def test_an_unknown_number_of_channels_is_0(channels: str) -> None:
    assert nccl_kernels.kernel("RING", "LL", channels) == NcclKernel("Ring", "LL")


def test_the_table_shows_kernels_by_request_and_nccl_tests_text_never() -> None:
    result = log_result(RING)
    plain, table = view("table").render(result), view("table", ran=True).render(result)
    assert "proto" not in plain
    assert [line.split()[-3:] for line in table.splitlines()[3:7]] == [
        ["algo", "proto", "channels"],
        ["GB/s", "%", "GB/s"],
        ["-", "-", "-"],
        ["Ring", "LL", "2"],
    ]
    assert "channels" in view("table", 80, ran=True).render(result)
    assert "Ring" not in view("nccl-tests", ran=True).render(result)
    assert read(view("json").render(result).encode(), "x").rows[1].ran == NcclKernel(
        "Ring", "LL", 2
    )


def test_a_kernel_over_symmetric_memory_has_its_name_in_place_of_a_protocol() -> None:
    result = log_result(SYMMETRIC)
    shown = view("table", ran=True).render(result)
    assert re.search("Symmetric +AGxLL_R +2$", shown, re.MULTILINE)
    plain = shown.splitlines()[3]
    result.spec = msgspec.structs.replace(result.spec, local_register=2)
    wide = view("table", ran=True).render(result).splitlines()[3]
    assert len(wide) == len(plain) + len("RSxTmaLD_AGxTmaST") - len(" proto"), (
        "room for the longest name"
    )
    unnamed, named = NcclKernel("Symmetric", ""), result.rows[1].ran
    assert named and unnamed.same(named) and named.same(unnamed) and unnamed.form == ""
    assert not named.same(NcclKernel("Symmetric", "", 2, "AllReduce_AGxLLMC_R"))
    assert NcclKernel("Symmetric", "", 2, "New").form == "New"
    assert str(named) == "Symmetric AllReduce_AGxLL_R, 2 channels"


def test_a_kernel_that_sends_between_hosts_itself_is_said_to() -> None:
    rail = said(
        "AllReduce [Symmetric]: 16384 Bytes -> Kernel AllGather_RailRing_LsaSTMC nchannels 16"
        " nthreads 512 nWorks 1"
    )
    line = "between hosts RailRing_LsaSTMC sent by GIN, whose network devices are not known\n"
    assert line in view("table", ran=True).render(log_result(rail))
    assert "GIN" not in view("table", ran=True).render(log_result(SYMMETRIC))


@pytest.mark.parametrize(
    "words", [["show", "run.json"], ["run", "all_reduce"], ["replay", "run.json"]]
)
def test_other_formats_have_no_columns_to_add(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded([*words, "--ran", "--format", "csv"]) == 2
    assert "--ran adds columns to the table, not to csv" in capsys.readouterr().err


def test_kernels_in_place_are_those_of_cells_in_place() -> None:
    result, other = log_result(RING), log_result(RING)
    row = result.rows[1]
    row.in_place, row.ran_in_place = row.out_of_place, NcclKernel("Tree", "LL", 2)
    other.rows[1].in_place = row.out_of_place
    shown = view("table", 80, ran=True).render(result)
    assert "in place NCCL ran 1 of 2 sizes differently: at 16 KiB Tree LL, 2 channels\n" in shown
    note = "NCCL ran 1 of 2 cells differently: at 16 KiB in place Tree LL, 2 channels in A;"
    assert f"{note} Ring LL, 2 channels in B" in compare([("a", result)], [("b", other)]).notes
    row.out_of_place = None
    assert re.search("Tree +LL +2$", view("table", ran=True).render(result), re.MULTILINE)


def test_compare_says_where_kernels_differ() -> None:
    ring, tree = log_result(RING), log_result(TREE)
    note = "NCCL ran 1 of 1 cell differently: at 16 KiB Ring LL, 2 channels in A;"
    assert (
        f"{note} NVLSTree Simple, 16 channels in B" in compare([("a", ring)], [("b", tree)]).notes
    )
    for other in (ring, log_result("")):
        notes = compare([("a", ring)], [("b", other)]).notes
        assert not any(text.startswith("NCCL ran") for text in notes)
