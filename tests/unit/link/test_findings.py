"""Findings of a tournament, from rates that are given."""

import re

import msgspec
import pytest

from busbw.core.finding import Verdict
from busbw.host.endpoints import Endpoint
from busbw.link import findings
from busbw.link.types import PERFTEST, LinkHost, LinkReport, LinkSpec, PairFlow, Rail

GBIT = 1e9 / 8


def report(count=4, *, line=100.0, rate=95.0, spec=None, both_directions=False, **ports):
    """`count` hosts on one rail; all rates in Gbit/s."""
    endpoints = [
        Endpoint(
            name="eth0",
            address=f"10.0.0.{at}",
            network="10.0.0.0/24",
            mtu=9000,
            rate=line and line * GBIT,
            **ports,
        )
        for at in range(count)
    ]
    flows = [
        PairFlow(rail=0, sender=a, receiver=b, rate=rate * GBIT, together=together)
        for together in ((False, True) if both_directions else (False,))
        for a in range(count)
        for b in range(count)
        if a != b
    ]
    hosts = [LinkHost(f"h{at + 1}", f"h{at + 1}") for at in range(count)]
    return LinkReport(
        spec=spec or LinkSpec(),
        hosts=hosts,
        rails=[Rail("10.0.0.0/24", endpoints)],
        flows=flows,
        complete=True,
    )


def verdicts(link_report):
    return [(finding.id, finding.verdict) for finding in findings.findings(link_report)]


def test_hosts_that_reach_the_mark_pass():
    assert verdicts(report()) == [("link.alike", Verdict.PASS)]


@pytest.mark.parametrize(("rate", "verdict"), [(94.06, Verdict.PASS), (94.05, Verdict.FAIL)])
def test_the_mark_is_95_percent_of_the_payload(rate, verdict):
    """MTU 9000 carries 99.0 of 100 Gbit/s."""
    link_report = report(2, rate=rate)
    assert [finding.verdict for finding in findings.findings(link_report)] == [verdict]


def test_the_mark_is_lower_from_gpu_memory():
    rdma = {"kind": "roce", "device": "mlx5_0"}
    assert verdicts(report(2, rate=91.0, spec=LinkSpec(method=PERFTEST), **rdma))[0] == (
        "link.mark",
        Verdict.FAIL,
    )
    assert verdicts(report(2, rate=91.0, spec=LinkSpec(method=PERFTEST, gpu=0), **rdma)) == [
        ("link.alike", Verdict.PASS)
    ]


def test_the_mtu_that_perftest_reports_counts():
    link_report = report(2, rate=90.0, spec=LinkSpec(method=PERFTEST), kind="roce", device="mlx5_0")
    assert verdicts(link_report)[0] == ("link.mark", Verdict.FAIL)
    for flow in link_report.flows:
        flow.mtu = 1024
    assert verdicts(link_report) == [("link.alike", Verdict.PASS)]


def test_busy_processors_leave_the_link_unknown():
    link_report = report(2, rate=50.0)
    for flow in link_report.flows:
        flow.processor_bound = True
    assert verdicts(link_report) == [
        ("link.alike", Verdict.UNKNOWN),
        ("link.mark", Verdict.UNKNOWN),
    ]
    assert "the CPUs limited the rate" in findings.findings(link_report)[1].message


def test_without_a_line_rate_hosts_are_compared_alone():
    assert verdicts(report(line=None)) == [
        ("link.alike", Verdict.PASS),
        ("link.mark", Verdict.SKIP),
    ]
    assert verdicts(report(2, line=None)) == [
        ("link.alike", Verdict.UNKNOWN),
        ("link.mark", Verdict.UNKNOWN),
    ]
    assert verdicts(report(line=None, spec=LinkSpec(line_rate=100 * GBIT))) == [
        ("link.alike", Verdict.PASS)
    ]


@pytest.mark.parametrize(
    ("shares", "limited"), [((0.2, 0.3), "2"), ((None, 0.97), "1"), ((0.95, 0.97), "")]
)
def test_without_a_line_rate_busy_cpus_are_named_all_the_same(shares, limited):
    link_report = report(2, line=None)
    for flow, share in zip(link_report.flows, shares, strict=True):
        flow.processor_bound, flow.network_share = True, share
    _, mark = findings.findings(link_report)
    said = f"; the CPUs limited the rate of {limited}, so the link may be faster"
    assert (said in mark.message, "--streams" in mark.fix) == (bool(limited), bool(limited))


@pytest.mark.parametrize(
    ("rates", "place"),
    [
        ((50.0, 49.0), "on h1: compare cable, .*; or h2 is the slow one: a third host tells which"),
        ((49.0, 50.0), "on h1: compare cable, .*; or h2 is the slow one: a third host tells which"),
        ((95.0, 50.0), "on h2: compare cable, .*; or h1 receives slowly: a third host tells which"),
    ],
)
def test_of_two_hosts_below_the_mark_neither_is_blamed_alone(rates, place):
    link_report = report(2)
    for flow, rate in zip(link_report.flows, rates, strict=True):
        flow.rate = rate * GBIT
    (mark,) = findings.findings(link_report)
    assert re.fullmatch(place, mark.fix)


def test_different_mtus_are_a_warning_beside_the_verdict():
    link_report = report(3)
    ports = link_report.rails[0].endpoints
    ports[0] = msgspec.structs.replace(ports[0], mtu=1500)
    found = findings.findings(link_report)
    assert [finding.verdict for finding in found] == [Verdict.PASS, Verdict.WARN]
    assert found[1].message == "the MTUs of the ports on 10.0.0.0/24 differ: h1: 1500; h2, h3: 9000"


def test_a_given_line_rate_replaces_that_of_a_lab():
    lab, given = {"line": 1.0, "in_lab": True}, LinkSpec(line_rate=2 * GBIT)
    (alike,) = findings.findings(report(2, rate=0.98, **lab))
    assert alike.verdict is Verdict.PASS
    assert "reach the pass mark of the lab's rate, the slowest transfer has" in alike.message
    (mark,) = findings.findings(report(2, rate=0.99, spec=given, **lab))
    assert mark.verdict is Verdict.FAIL and "what the given --line-rate can carry" in mark.message
    assert verdicts(report(2, line=1.0, rate=0.99, spec=given)) == [("link.alike", Verdict.PASS)]


@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize(
    ("line", "given", "carrier"),
    [({"line": 1.0, "in_lab": True}, 0.3, "the given --line-rate"), ({"line": 0.3}, 1, "the link")],
)
def test_a_rate_above_that_of_the_link_is_doubted(hosts, line, given, carrier):
    spec = LinkSpec(line_rate=given * GBIT)
    (alike,) = findings.findings(report(hosts, rate=0.99, spec=spec, **line))
    assert alike.verdict is Verdict.PASS
    doubt = f" that {carrier} can carry, so the real rate is higher"
    count = len(report(hosts).flows)
    assert f"; {count} of {count} exceed the 297 Mbit/s" in alike.message and doubt in alike.message


def test_a_slow_host_is_named_with_its_counters():
    link_report = report()
    for flow in link_report.flows:
        if flow.sender == 2:
            flow.rate = 40 * GBIT
            flow.moved = {
                "h3": {
                    "mlx5_0": {"port_xmit_wait": 10**9},
                    "eth0": {"tx_dropped": 7},
                    "tcp": {"RetransSegs": 500, "TCPTimeouts": 1},
                },
                "h1": {"eth0": {"rx_dropped": 1}},
            }
    slow = findings.findings(link_report)
    assert [finding.id for finding in slow] == ["link.host_slow"]
    assert (
        slow[0].message
        == "h3 is slow on 10.0.0.0/24: it sends 40 Gbit/s in 3 pairs, the usual rate is 95 Gbit/s"
    )
    assert (
        slow[0].evidence
        == "meanwhile h3 tcp RetransSegs +1500, h3 eth0 tx_dropped +21, h3 tcp TCPTimeouts +3"
    )
    assert slow[0].fix.startswith("on h3: compare cable")


def test_both_directions_of_one_host_are_one_finding():
    link_report = report()
    for flow in link_report.flows:
        if 1 in (flow.sender, flow.receiver):
            flow.rate = 40 * GBIT
    (slow,) = findings.findings(link_report)
    assert "it sends 40 Gbit/s and receives 40 Gbit/s in 3 pairs" in slow.message


def test_a_slow_pair_is_not_blamed_on_its_hosts():
    link_report = report(6)
    next(flow for flow in link_report.flows if (flow.sender, flow.receiver) == (1, 4)).rate = (
        30 * GBIT
    )
    pair, mark = findings.findings(link_report)
    assert pair.id == "link.pair_slow"
    assert pair.message.endswith("although both hosts are fast with others: h2 -> h5 30 Gbit/s")
    assert mark.id == "link.mark"


def test_a_pair_that_the_cpus_slow_down_is_unknown():
    link_report = report(6)
    flow = next(flow for flow in link_report.flows if (flow.sender, flow.receiver) == (1, 4))
    flow.rate, flow.processor_bound = 30 * GBIT, True
    assert verdicts(link_report)[0] == ("link.pair_slow", Verdict.UNKNOWN)
    pair = findings.findings(link_report)[0]
    assert "the CPUs limited the rate" in pair.message and "--streams" in pair.fix


@pytest.mark.parametrize(
    ("bound", "share", "verdict"),
    [
        (False, None, Verdict.FAIL),
        (True, None, Verdict.UNKNOWN),
        (True, 0.4, Verdict.UNKNOWN),
        (True, 0.95, Verdict.FAIL),
    ],
)
def test_a_host_whose_cpus_limit_its_transfers_is_not_called_slow(bound, share, verdict):
    link_report = report(4)
    for flow in link_report.flows:
        if flow.sender == 1:
            flow.rate, flow.processor_bound, flow.network_share = 40 * GBIT, bound, share
    found = {finding.id: finding for finding in findings.findings(link_report)}
    assert found["link.host_slow"].verdict is verdict


@pytest.mark.parametrize(
    ("rate", "share", "verdict"),
    [
        (2.80, 0.92, Verdict.UNKNOWN),  # 3.04 Gbit/s while the network alone was waited for
        (2.80, 0.99, Verdict.UNKNOWN),  # 2 % below the mark: no clear fault of the link
        (1.00, 0.30, Verdict.UNKNOWN),
        (1.00, 0.90, Verdict.FAIL),
        (2.80, None, Verdict.UNKNOWN),
    ],
)
def test_busy_cpus_excuse_a_rate_below_the_mark_only_if_the_link_could_reach_it(
    rate, share, verdict
):
    link_report = report(2, line=3.0, rate=rate)
    for flow in link_report.flows:
        flow.processor_bound, flow.network_share = True, share
    assert ("link.mark", verdict) in verdicts(link_report)


def test_a_host_slow_only_with_both_directions_at_once_is_named():
    link_report = report(both_directions=True)
    for flow in link_report.flows:
        if flow.together and flow.receiver == 0:
            flow.rate = 50 * GBIT
    (slow,) = findings.findings(link_report)
    assert slow.message.startswith(
        "h1 is slow on 10.0.0.0/24 with both directions at once: it receives 50 Gbit/s"
    )


def test_a_host_that_exchanges_no_data_is_named_alone():
    link_report = report()
    for flow in link_report.flows:
        if 3 in (flow.sender, flow.receiver):
            flow.rate, flow.error = None, "h4: timed out"
    (failed,) = findings.findings(link_report)
    assert failed.verdict is Verdict.FAIL
    assert failed.message == "h4 exchanges no data with any host on 10.0.0.0/24: h4: timed out"


def test_a_pair_that_fails_is_named():
    link_report = report()
    link_report.flows[0].rate, link_report.flows[0].error = None, "connection refused"
    (failed,) = findings.findings(link_report)
    assert failed.message == "1 of 12 transfers failed on 10.0.0.0/24: h1 -> h2"
    assert failed.evidence == "connection refused"


def test_when_all_transfers_fail_no_host_is_blamed():
    link_report = report()
    for flow in link_report.flows:
        flow.rate, flow.error = None, "no route"
    (failed,) = findings.findings(link_report)
    assert failed.message.startswith("12 of 12 transfers failed")


def test_a_lost_host_is_unknown_and_not_a_failure():
    link_report = report()
    link_report.hosts[3].problem = "no answer within 20 s"
    for flow in link_report.flows:
        if 3 in (flow.sender, flow.receiver):
            flow.rate, flow.error = None, "h4: no answer within 20 s"
    assert verdicts(link_report) == [(findings.HOST, Verdict.UNKNOWN), ("link.alike", Verdict.PASS)]


def test_a_host_without_a_port_on_the_rail_is_unknown():
    link_report = report()
    link_report.rails[0].endpoints[2] = None
    link_report.flows = [
        flow for flow in link_report.flows if 2 not in (flow.sender, flow.receiver)
    ]
    assert verdicts(link_report)[0] == (findings.HOST, Verdict.UNKNOWN)
    assert findings.findings(link_report)[0].message == "no port on 10.0.0.0/24: h3"


def test_a_link_that_went_down_is_a_fault():
    link_report = report()
    link_report.flows[0].moved = {"h1": {"eth0": {"carrier_down_count": 1}}}
    (fault,) = findings.findings(link_report)
    assert (
        fault.message
        == "h1 eth0 during the test on 10.0.0.0/24: carrier_down_count +1 (the link went down)"
    )


FAST, SLOW = [990.0, 985.0, 991.0, 907.0], [297.0, 298.0, 296.0, 291.0]


@pytest.mark.parametrize(
    ("fast", "slow", "bound", "share", "verdict"),
    [
        (FAST, SLOW, False, None, Verdict.FAIL),
        (FAST, SLOW, True, None, Verdict.UNKNOWN),
        (FAST, SLOW, True, 0.96, Verdict.FAIL),  # a throttled sender on a busy machine
        (FAST, SLOW, True, 0.20, Verdict.UNKNOWN),
        (FAST[:3], SLOW[:3], False, None, None),  # by chance in 2 of 20
        (FAST, [297.0, 298.0, 296.0, 910.0], False, None, None),
        (FAST, [902.0, 901.0, 903.0, 904.0], False, None, None),  # 9 % less: hosts differ so much
    ],
)
def test_the_slower_direction_of_two_hosts_is_named(fast, slow, bound, share, verdict):
    link_report = report(2, line=None)
    of_first, of_second = link_report.flows
    for flow, rates in ((of_first, fast), (of_second, slow)):
        flow.rates = [rate * GBIT / 1e3 for rate in rates]
        flow.rate = max(flow.rates)
    of_second.processor_bound, of_second.network_share = bound, share
    found = {finding.id: finding for finding in findings.findings(link_report)}
    named = found.get("link.direction_slow")
    assert (named and named.verdict) == verdict
    assert named or found["link.alike"].verdict is Verdict.UNKNOWN
    if named:
        assert named.message.startswith(
            "h2 -> h1 is slower than h1 -> h2 on 10.0.0.0/24: at most 298 Mbit/s, the other at"
            " least 907 Mbit/s, in 4 transfers each"
        )


def test_a_direction_with_a_pass_mark_is_judged_by_it():
    link_report = report(2, line=100.0)
    link_report.flows[1].rate = 30 * GBIT
    assert findings.directions(link_report, 0) is None
    assert verdicts(link_report) == [("link.mark", Verdict.FAIL)]


def test_a_report_without_rails_has_no_findings():
    assert findings.findings(LinkReport(spec=LinkSpec())) == []
