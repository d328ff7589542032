"""Each pattern of counters is reported where it occurs, and nowhere else."""

import pytest

from busbw.core.link_samples import ETHERNET, IB, NVLINK, PCIE, RDMA, ROCE, LinkFlow
from busbw.core.watch_counters import levels, watched_by_name
from busbw.watch.verdicts import PATTERNS, judge

QUIET = dict.fromkeys(watched_by_name(), 0.0) | {"rx_bits_phy": 3e11}


def flow(kind: str = ROCE, **changed) -> LinkFlow:
    """A link at half its rate, all of whose counters are known and quiet, with changes."""
    counters = (
        QUIET
        | {"outbound_pci_stalled_rd": 0, "outbound_pci_stalled_wr": 0}
        | changed.pop("counters", {})
    )
    fields = {
        "rate": 50e9,
        "tx": 25e9,
        "rx": 25e9,
        "tx_pause": 0.0,
        "rx_pause": 0.0,
        "cnp_sent": 0.0,
        "cnp_handled": 0.0,
    }
    return LinkFlow(name="mlx5_0", kind=kind, counters=counters, **(fields | changed))


def paused(direction: str, share: float, **counters: float) -> dict[str, object]:
    return {
        f"{direction}_pause": share,
        "counters": {f"{direction}_prio3_pause_duration": share * 1e6, **counters},
    }


def flow_by_priority(rdma: float, **by_priority: float) -> LinkFlow:
    """RDMA data, and what each priority sent."""
    sent = {f"tx_{name}_bytes": value for name, value in by_priority.items()}
    return flow(counters={"tx_vport_rdma_unicast_bytes": rdma, **sent})


SEEN = {
    "gone": LinkFlow(name="mlx5_0", kind=ROCE, state="gone"),
    "down": flow(state="down"),
    "link-lost": flow(counters={"link_downed": 1}),
    "link-recovered": flow(counters={"link_error_recovery": 1}),
    "gave-up": flow(counters={"req_transport_retries_exceeded": 1}),
    "no-answer": flow(RDMA, counters={"unresponsive_remote_events": 1}),
    "pcie-limit": flow(**paused("tx", 0.3, outbound_pci_stalled_wr=45)),
    "slow-receiver": flow(**paused("tx", 0.3)),
    "reads-stalled": flow(counters={"outbound_pci_stalled_rd": 60}),
    "pci-overflow": flow(counters={"outbound_pci_buffer_overflow": 7}),
    "pfc-without-ecn": flow(**paused("rx", 0.2)),
    "pause-storm": flow(counters={"tx_pause_storm_warning_events": 1}),
    "congestion-control": flow(cnp_handled=4632.0),
    "ecn-off": flow(counters={"rp_cnp_ignored": 3}),
    "lossy-class": flow(counters={"rx_prio3_discards": 12}),
    "loss": flow(counters={"packet_seq_err": 5, "out_of_sequence": 9}),
    "out-of-order": flow(counters={"out_of_sequence": 9}),
    "no-receive": flow(counters={"rnr_nak_retry_err": 2}),
    "cable": flow(counters={"rx_corrected_bits_phy": 3e7}),
    "symbol-errors": flow(IB, counters={"symbol_error": 3}),
    "bad-checksums": flow(counters={"rx_crc_errors_phy": 1}),
    "oversize": flow(counters={"rx_oversize_pkts_phy": 8}),
    "module": flow(counters={"module_high_temp": 1}),
    "credits": flow(IB, counters={"port_xmit_wait": 1e9}),
    "wrong-class": flow(counters={"tx_vport_rdma_unicast_bytes": 24e9, "tx_prio0_bytes": 25e9}),
    "nvlink-errors": flow(NVLINK, counters={"nvlink_replay": 4}),
    "pcie-errors": flow(PCIE, counters={"pcie_replay": 4}),
}


def test_every_pattern_has_a_case():
    assert list(SEEN) == [pattern.name for pattern in PATTERNS]


@pytest.mark.parametrize("name", SEEN)
def test_pattern_is_reported_alone(name):
    (match,) = judge([SEEN[name]])
    assert (match.link, match.pattern) == ("mlx5_0", name)
    assert match.seen and match.message


@pytest.mark.parametrize("kind", [IB, ROCE, ETHERNET, NVLINK, PCIE])
def test_a_quiet_link_has_no_pattern(kind):
    assert judge([flow(kind)]) == []


def test_a_link_without_counters_has_no_pattern():
    assert judge([LinkFlow(name="eth0", kind=ETHERNET)]) == []


def names(port_flow: LinkFlow) -> list[str]:
    return [match.pattern for match in judge([port_flow])]


def test_pauses_with_notifications_are_not_called_pauses_without_ecn():
    assert names(flow(**paused("rx", 0.2), cnp_handled=900.0)) == []


def test_pauses_with_unreadable_notifications_give_no_verdict_on_ecn():
    assert names(flow(**paused("rx", 0.2), cnp_sent=None, cnp_handled=None)) == []


def test_short_pauses_match_no_pattern():
    assert names(flow(**paused("rx", 0.009))) == [] and names(flow(**paused("rx", 0.01))) == [
        "pfc-without-ecn"
    ]


def test_a_slow_receiver_without_pcie_counters_is_named_without_them():
    port_flow = flow(**paused("tx", 0.3))
    del port_flow.counters["outbound_pci_stalled_wr"]
    (match,) = judge([port_flow])
    assert (match.pattern, match.seen) == (
        "slow-receiver",
        "tx_prio3_pause_duration 30 % of the time",
    )


def test_congestion_control_at_the_full_rate_matches_no_pattern():
    assert names(flow(tx=49e9, cnp_handled=900.0)) == []


def test_corrected_bits_below_the_limit_match_no_pattern():
    assert names(flow(counters={"rx_corrected_bits_phy": 2.9e6})) == []


def test_waiting_for_credits_is_a_pattern_of_infiniband_at_a_known_rate():
    assert names(flow(ROCE, counters={"port_xmit_wait": 1e9})) == []
    assert names(flow(IB, rate=None, counters={"port_xmit_wait": 1e9})) == []


def test_rdma_data_on_a_protected_priority_is_fine():
    assert (
        names(
            flow(
                counters={
                    "tx_vport_rdma_unicast_bytes": 24e9,
                    "tx_prio3_bytes": 25e9,
                    "tx_prio0_bytes": 1e6,
                }
            )
        )
        == []
    )


def test_tcp_on_priority_0_beside_rdma_on_another_is_fine():
    assert (
        names(
            flow(
                counters={
                    "tx_vport_rdma_unicast_bytes": 20e9,
                    "tx_prio3_bytes": 21e9,
                    "tx_prio0_bytes": 15e9,
                }
            )
        )
        == []
    )


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_reads_counters_of_the_table(pattern):
    assert set(pattern.reads) <= watched_by_name().keys() | levels().keys()
    changed = {
        name for name, value in SEEN[pattern.name].counters.items() if value != QUIET.get(name, 0)
    }
    named_counters = {
        part.split()[0] for part in judge([SEEN[pattern.name]])[0].seen.split(", ")
    } & (watched_by_name().keys() | levels().keys())
    assert named_counters <= set(pattern.reads) and (not changed or changed & set(pattern.reads))


def test_rare_events_are_not_shown_as_zero():
    (match,) = judge([flow(NVLINK, counters={"nvlink_recovery": 0.2})])
    assert match.seen == "nvlink_recovery 0.2/s"


def test_resent_packets_of_efa_are_loss():
    assert names(flow(RDMA, counters={"retrans_pkts": 3})) == ["loss"]


LIMITS = [
    ("pfc-without-ecn", flow(**paused("rx", 0.01)), flow(**paused("rx", 0.0099))),
    (
        "pfc-without-ecn",
        flow(**paused("rx", 0.2), cnp_sent=0.9),
        flow(**paused("rx", 0.2), cnp_sent=1.0),
    ),
    ("congestion-control", flow(cnp_handled=1.0), flow(cnp_handled=0.9)),
    ("congestion-control", flow(cnp_handled=9.0, tx=44.9e9), flow(cnp_handled=9.0, tx=45e9)),
    (
        "reads-stalled",
        flow(counters={"outbound_pci_stalled_rd": 10}),
        flow(counters={"outbound_pci_stalled_rd": 9}),
    ),
    (
        "cable",
        flow(counters={"rx_corrected_bits_phy": 3.1e6}),
        flow(counters={"rx_corrected_bits_phy": 3e6}),
    ),
    (
        "credits",
        flow(IB, counters={"port_xmit_wait": 625e6}),  # 8 bytes each, at 50 GB/s
        flow(IB, counters={"port_xmit_wait": 624e6}),
    ),
    ("wrong-class", flow_by_priority(10e6, prio0=5e6), flow_by_priority(9.9e6, prio0=5e6)),
    ("wrong-class", flow_by_priority(24e9, prio0=12e9), flow_by_priority(24e9, prio0=11.9e9)),
    (
        "wrong-class",
        flow_by_priority(24e9, prio0=24e9, prio3=12e9),
        flow_by_priority(24e9, prio0=24e9, prio3=12.1e9),
    ),
    (
        "wrong-class",
        flow_by_priority(24e9, prio0=24e9, prio1=12e9),
        flow_by_priority(24e9, prio0=24e9, prio1=12.1e9),
    ),
]


@pytest.mark.parametrize(("name", "matching", "other_flow"), LIMITS)
def test_a_pattern_begins_at_its_limit(name, matching, other_flow):
    assert name in names(matching)
    assert name not in names(other_flow)


@pytest.mark.parametrize(
    ("matching", "evidence"),
    [
        (
            flow(**paused("tx", 0.3, outbound_pci_stalled_wr=45)),
            "tx_prio3_pause_duration 30 % of the time, outbound_pci_stalled_wr 45 %",
        ),
        (
            flow(**paused("rx", 0.25), cnp_handled=0.4),
            "rx_prio3_pause_duration 25 % of the time, np_cnp_sent 0/s, rp_cnp_handled 0/s",
        ),
        (
            flow(cnp_handled=4632.0),
            "rp_cnp_handled 4,632/s, rx pauses 0.0 %, sent 50 % of the rate",
        ),
        (
            flow(counters={"rx_corrected_bits_phy": 3e7}),
            "1.0e-04 of the bits received were corrected",
        ),
        (
            flow(IB, counters={"port_xmit_wait": 1.25e9}),
            "port_xmit_wait 1,250,000,000 ticks/s: at least 20 % of the time",
        ),
        (flow_by_priority(24e9, prio0=25e9), "tx_prio0_bytes 25.00 GB/s, RDMA 24.00 GB/s"),
    ],
)
def test_the_values_behind_a_pattern(matching, evidence):
    (match,) = judge([matching])
    assert match.seen == evidence
