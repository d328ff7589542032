"""What is said of rates that grow, that are at their plateau, that no link has, and of NICs."""

import math
from pathlib import Path

import pytest
from transfer_outputs import configuration, nixlbench, row, table

from busbw.core.finding import RunFinding, Verdict
from busbw.model.systems import parse_system
from busbw.transfer import findings, read, text
from busbw.transfer.findings import DROP, END, FIGURES, NIC, ONE_AT_A_TIME, PLATEAU, ROWS, SLOW
from busbw.transfer.types import NIXLBENCH, Transfer, TransferReport, TransferRun

MIB = 1 << 20
RATES = [(MIB, 36.16), (64 * MIB, 47.66)]  # GB/s by size
SMALL = [4096, 8192, 16384, 32768, 65536]
PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


def report(output: str, system: str = "") -> TransferReport:
    found = read.read(output.encode(), "n.txt")
    assert found is not None
    return findings.judged(found, parse_system(system)) if system else found


def said(output: str, system: str = "") -> dict[str, RunFinding]:
    found = report(output, system).findings
    assert len({one.id for one in found}) == len(found)
    return {one.id: one for one in found}


def verdicts(output: str, system: str = "") -> dict[str, Verdict]:
    return {name: one.verdict for name, one in said(output, system).items()}


def test_a_rate_at_its_plateau_passes_and_needs_the_rate_of_a_nic() -> None:
    assert verdicts(nixlbench(4, 47)) == {PLATEAU: PASS, NIC: UNKNOWN}


def test_sizes_far_apart_whose_rates_differ_say_nothing_of_the_plateau() -> None:
    """36.2 GB/s at 1 MiB, 47.7 at 64 MiB: little for each doubling, and unknown in between."""
    rows = [row(size, 16, rate, size / rate / 1e3, 16 * size / rate / 1e3) for size, rate in RATES]
    found = said(configuration() + table(rows))[PLATEAU]
    assert found.verdict is UNKNOWN
    assert "16 x 64 MiB is faster by 32% than the size before it, 16 x 1 MiB" in found.message


def test_one_small_block_at_a_time_measures_latency() -> None:
    """ai-dynamo/nixl, issue 1021: 0.324 GB/s with one thread and one block of a request."""
    output = nixlbench(190, 12, blocks=SMALL, max_block_size=65536)
    found = said(output)[ONE_AT_A_TIME]
    assert found.verdict is WARN
    assert "one block of 64 KiB at a time, 195.5 us each, is 0.335 GB/s" in found.message
    assert "--max_batch_size" in found.fix
    assert PLATEAU not in said(output)


@pytest.mark.parametrize(
    "at_once",
    [{"batch": 64}, {"threads": 4}, {"pipeline_depth": 4}, {"mode": "MG", "num_initiator_dev": 2}],
)
def test_more_in_flight_is_no_measurement_of_latency(at_once: dict[str, object]) -> None:
    output = nixlbench(190, 12, blocks=SMALL, max_block_size=65536, **at_once)
    found = said(output)[PLATEAU]
    assert (found.verdict, "still grows" in found.message) == (WARN, True)


@pytest.mark.parametrize(("block", "name"), [(65536, ONE_AT_A_TIME), (64 * MIB, PLATEAU)])
def test_one_row_says_nothing_of_the_plateau(block: int, name: str) -> None:
    """But a small block by itself is latency, whatever the link is."""
    found = said(nixlbench(190, 12, blocks=[block]))
    assert found[name].verdict is (WARN if name == ONE_AT_A_TIME else UNKNOWN)
    assert {ONE_AT_A_TIME, PLATEAU} & set(found) == {name}


def test_with_one_block_size_the_batch_may_grow() -> None:
    """ai-dynamo/nixl, issue 1320: blocks of 1 KiB, 128 to 1024 of them."""
    times_us = {128: 200, 256: 220, 512: 260}
    lines = [row(1024, n, 1.024 * n / us, us / n, us - 1) for n, us in times_us.items()]
    found = said(configuration(max_block_size=1024) + table(lines))[PLATEAU]
    assert (found.verdict, found.fix) == (WARN, "raise --max_batch_size")
    assert "at 512 x 1 KiB, the largest batch" in found.message


def test_a_rate_that_falls_at_the_end_is_reported() -> None:
    """ai-dynamo/nixl, issue 610: writes of 100 MB."""
    lines = [row(MIB << at, 1, rate, 1e3, 1.0) for at, rate in enumerate((20.0, 24.0, 25.0, 12.0))]
    output = configuration(max_block_size=8 * MIB) + table(lines)
    found = said(output)[DROP]
    assert (found.verdict, PLATEAU in said(output)) == (WARN, False)
    assert found.message == "the rate falls: 25.00 GB/s at 4 MiB, 12.00 GB/s at 8 MiB"
    posix = output.replace(": UCX", ": POSIX")
    assert "--storage_enable_direct 1" in said(posix)[DROP].fix


def test_a_plateau_below_10_gbit_is_slow_except_of_storage() -> None:
    """ai-dynamo/nixl, issue 922: 0.4 GB/s between two GPUs."""
    assert verdicts(nixlbench(10, 0.4)) == {PLATEAU: PASS, SLOW: WARN, NIC: UNKNOWN}
    assert verdicts(nixlbench(10, 0.4, backend="POSIX")) == {PLATEAU: PASS}


def test_no_link_carries_more_than_the_fastest() -> None:
    """NVIDIA/cloudai's example of the table before 0.5.1 has 1688 GB/s at 64 MiB."""
    output = (
        "Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)"
        "  B/W (GB/Sec)\n"
        "67108864            1              39.746         1.61022e+06    1572.48        1688.44\n"
    )
    found = said(output)
    assert found[FIGURES].verdict is FAIL
    assert found[FIGURES].message == "1688.4 GB/s at 64 MiB is more than any link carries"
    assert PLATEAU not in found
    many = nixlbench(4, 1200, backend="GDS", num_initiator_dev=8)
    assert FIGURES not in said(many)


def test_a_rate_that_its_times_exclude_is_wrong() -> None:
    """ai-dynamo/nixl, issue 1463: multiplied by the number of devices."""
    found = said(nixlbench(4, 47, scale=8, num_initiator_dev=8))[FIGURES]
    assert found.verdict is FAIL
    assert "374.95 GB/s, but by its times 46.90 GB/s at most" in found.message
    assert "--num_initiator_dev" in found.fix
    assert FIGURES not in said(nixlbench(4, 47, scale=8, backend="GDS", num_initiator_dev=8))
    assert FIGURES not in said(nixlbench(4, 47, threads=8, pipeline_depth=1))


@pytest.mark.parametrize(
    ("rate", "system", "options", "verdict", "words"),
    [
        (47, "h100x8", {}, PASS, "96 % of what one NIC of h100x8 can carry"),
        (20, "h100x8", {}, WARN, "41 % of what one NIC"),
        (90, "h100x8", {}, PASS, "of what 2 NICs at least of h100x8"),
        (90, "h100x8", {"device_list": "mlx5_0"}, WARN, "others took part, or NVLink did"),
        (47, "h100x8", {"device_list": "mlx5_0,mlx5_1"}, WARN, "48 % of what 2 NICs"),
        (450, "h100x8", {}, WARN, "more than all NICs carry"),
        (47, "p5.48xlarge", {}, PASS, "of what 4 NICs at least of p5.48xlarge"),
        (47, "l40sx8", {}, UNKNOWN, "no NIC of l40sx8 is known"),
    ],
)
def test_rates_are_compared_with_those_of_the_nics(
    rate: float, system: str, options: dict[str, str], verdict: Verdict, words: str
) -> None:
    found = said(nixlbench(4, rate, **options), system)[NIC]
    assert (found.verdict, words in found.message) == (verdict, True), found.message


def test_a_rate_that_still_grows_does_not_judge_a_nic() -> None:
    output = nixlbench(190, 12, blocks=SMALL, max_block_size=65536)
    found = said(output, "h100x8")[NIC]
    assert (found.verdict, "not at the plateau" in found.message) == (UNKNOWN, True)


def test_storage_and_latency_are_not_compared_with_nics(recorded: Path) -> None:
    assert NIC not in said(nixlbench(4, 47, backend="GDS"), "h100x8")
    latency = (recorded / "ucx_perftest" / "latency.txt").read_text()
    assert verdicts(latency) == {PLATEAU: Verdict.SKIP}


def test_what_was_not_read_is_said() -> None:
    output = nixlbench(4, 47, blocks=SMALL)
    assert "1 table did not end" in said(output)[END].message
    assert "1 line of tables" in said(nixlbench(4, 47).rstrip()[:-20])[ROWS].message


def test_findings_of_several_tables_name_theirs() -> None:
    found = report(nixlbench(4, 47) + nixlbench(10, 0.4)).findings
    assert [one.message.partition(":")[0] for one in found if one.id == PLATEAU] == [
        "table 1",
        "table 2",
    ]


def test_a_sweep_of_ucx_perftest_is_judged_like_one_of_nixlbench(recorded: Path) -> None:
    output = (recorded / "ucx_perftest" / "sizes.txt").read_text()
    assert verdicts(output) == {PLATEAU: PASS, NIC: UNKNOWN}
    assert verdicts(output.replace("8045.08", "14934.00")) == {PLATEAU: WARN, NIC: UNKNOWN}


@pytest.mark.parametrize("rate", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("size", [0, None, 1 << 20])
def test_a_file_with_odd_figures_is_judged(rate: float, size: int | None) -> None:
    rows = [
        Transfer(run=0, size_bytes=size, batch=batch, rate=rate, time_s=0.0, request_s=request_s)
        for batch, request_s in ((0, None), (1, 0.0), (2, 1e-3))
    ]
    odd = TransferReport(
        program=NIXLBENCH, runs=[TransferRun(depth=0, devices=0, threads=0)], rows=rows
    )
    assert findings.judged(odd, parse_system("h100x8")).findings
    assert text.render(odd, 80)
