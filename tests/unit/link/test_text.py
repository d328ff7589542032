"""A test of links as text and page: a slow host, a failed transfer and an unmeasured one are
distinguished.
"""

import itertools

import pytest

from busbw.host.endpoints import Endpoint
from busbw.link import html as link_html
from busbw.link import text as link_matrix
from busbw.link import text as link_text
from busbw.link.types import PERFTEST, LinkHost, LinkReport, LinkSpec, PairFlow, Rail

GBIT = 1e9 / 8
NAMES = ("a", "b", "c")


@pytest.fixture
def report():
    """Three hosts: a sends at half of the rate, b to c failed, c to a was not measured."""
    ports = [
        Endpoint(name="eth0", address=f"10.0.0.{at}", network="10.0.0.0/24", device="mlx5_0")
        for at in range(3)
    ]
    rates = {(0, 1): 50, (0, 2): 50, (1, 0): 100, (2, 1): 100}
    flows = [
        PairFlow(rail=0, sender=a, receiver=b, rate=rate * GBIT) for (a, b), rate in rates.items()
    ]
    flows.append(PairFlow(rail=0, sender=1, receiver=2, error="c: <refused>"))
    return LinkReport(
        spec=LinkSpec(),
        hosts=[LinkHost(name) for name in NAMES],
        rails=[Rail("10.0.0.0/24", ports)],
        flows=flows,
        complete=True,
    )


def test_the_text_marks_slow_failed_and_missing(report):
    assert link_text.render(report).endswith("\n     123\n   1 .▄▄\n   2 █.x\n   3  █.\n")


def test_a_map_that_does_not_fit_is_left_out(report):
    assert "from row to column" in link_text.render(report, 8 + 72)
    (found_map,) = link_matrix.maps(report, 0)
    assert link_text.characters(found_map[1], found_map[2], 7) == ""


def test_both_directions_at_once_have_a_map_of_their_own(report):
    report.flows.append(PairFlow(rail=0, sender=0, receiver=1, rate=10 * GBIT, together=True))
    assert "\nboth directions at once, from row to column; █ is 10 Gbit/s" in link_text.render(
        report
    )
    assert link_html.page(report).count(b'class="map"') == 2


def test_the_page_describes_each_cell(report):
    page = link_html.page(report).decode()
    assert "<title>a to b: 50 Gbit/s</title>" in page
    assert "<title>b to c: c: &lt;refused&gt;</title>" in page
    assert "<title>c to a: not measured</title>" in page
    assert page.count('class="failed"') == 2, "one cell, and the key"
    assert page.count('class="absent"') == 2


def test_round_trips_of_tcp_and_latency_of_perftest(report):
    assert ">round trip</th>" in link_html.page(report).decode()
    assert ">resent</th>" in link_html.page(report).decode()
    report.spec = LinkSpec(method=PERFTEST)
    page = link_html.page(report).decode()
    assert ">latency</th>" in page
    assert "resent" not in page.partition("<body>")[2]
    assert "perftest, 1 MiB, 4 QPs, 2 s each" in page


def test_lightness_alone_distinguishes_shares():
    """Relative luminance of sRGB (WCAG 2) grows by a factor from each shade of the key to the
    next.
    """

    def luminance(color):
        linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    shades = [luminance(value) for _, value in link_matrix.SCALE]
    assert all(b > 1.5 * a for a, b in itertools.pairwise(shades))


@pytest.mark.parametrize("count", [1, 2, 64, 150])
def test_any_number_of_hosts_is_drawn(count):
    flows = [
        PairFlow(rail=0, sender=at, receiver=(at + 1) % count, rate=1e9)
        for at in range(count)
        if count > 1
    ]
    rail = Rail("r", [Endpoint(name="e", address="10.0.0.1", network="n")] * count)
    report = LinkReport(
        spec=LinkSpec(),
        hosts=[LinkHost(f"h{at}") for at in range(count)],
        rails=[rail],
        flows=flows,
    )
    assert link_html.page(report)
    assert link_text.render(report)


def test_a_report_without_measurements_is_drawn():
    report = LinkReport(spec=LinkSpec())
    assert b"<h1>Links between 0 hosts</h1>" in link_html.page(report)
    assert (
        link_text.render(report)
        == "# TCP, 4 streams, 2 s each: 0 hosts, 0 transfers\n# the test did not finish; these are"
        " the results so far\n"
    )
