"""The links of a watched run as lines under its table."""

import pytest

from busbw.core.link_samples import IB, NVLINK
from busbw.core.result import Cell, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.telemetry import HostChange, LinkTraffic
from busbw.measure.formats import link_table, table


def watched(*links: LinkTraffic, rows: int = 1, resent: int | None = None) -> Result:
    devices = [RankDevice(rank, 1, f"h{rank}", 0, "", "CPU") for rank in range(2)]
    changes = [HostChange(f"h{host}", 1.0, links=list(links), resent=resent) for host in range(2)]
    table_rows = [
        ResultRow(
            1024,
            256,
            "float",
            "sum",
            -1,
            Cell(1e-5, 1e8, 1e8),
            None,
            1,
            machine=changes,
            operations=1000,
        )
        for _ in range(rows)
    ]
    return Result(SweepSpec(collective="all_reduce"), world=World(devices, 2), rows=table_rows)


def test_lines_have_the_traffic_of_each_host():
    text = link_table.text(
        watched(
            LinkTraffic(
                "mlx5_0", IB, sent=1_075_200, received=1_000_000, cnp_in=1234, pause_in_s=0.25
            ),
            resent=0,
        )
    )
    assert text.splitlines() == [
        (
            "what links carried while each size was measured, its checks and untimed operations"
            " included; least = what the operations must send from a host, or from its GPUs"
        ),
        " size  host  links      sent  of least  received  TCP resent  pause in  CNP in  troubled",
        "1 KiB  h0    mlx5_0  1.08 MB      1.05      1 MB           0  250.0 ms   1,234  mlx5_0",
        "1 KiB  h1    mlx5_0  1.08 MB      1.05      1 MB           0  250.0 ms   1,234  mlx5_0",
    ]


def test_many_links_are_one_line():
    links = [
        LinkTraffic(f"GPU{number} NVLink", NVLINK, sent=10, received=10) for number in range(8)
    ]
    assert "8 GPUs nvlink" in link_table.text(watched(*links))


def test_a_run_that_was_not_watched_shows_nothing():
    assert link_table.text(watched()) == ""


def test_a_run_without_traffic_is_reported():
    assert (
        link_table.text(watched(LinkTraffic("mlx5_0", IB, sent=0)))
        == "links: none carried data of this run\n"
    )


def test_it_stands_under_the_table_and_keeps_to_the_terminal():
    result = watched(
        LinkTraffic(
            "mlx5_0", IB, sent=1_000_000, received=1, lost=1, dropped=2, cnp_in=3, cnp_out=4, ecn=5
        ),
        resent=6,
    )
    text = table.footer(result, 80)
    assert "links" in text and max(map(len, text.splitlines())) <= 80


def test_lines_are_limited():
    text = link_table.text(watched(LinkTraffic("mlx5_0", IB, sent=10), rows=link_table.MAX_LINES))
    assert (
        len(text.splitlines()) == 2 + link_table.MAX_LINES + 1
        and f"... {link_table.MAX_LINES} more lines" in text
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (12_345, "12.3 kB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (8_589_934_592, "8.59 GB"),
    ],
)
def test_bytes_have_three_digits(count, text):
    assert link_table.bytes_text(count) == text
