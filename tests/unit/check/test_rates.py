"""How fast counters rise: two readings give a rate, a total does not, and a counter at its maximum
gives no verdict.
"""

import pytest
from cases_nic import NET
from healthy_gpu import changed as gpu_changed
from healthy_pcie import gpu_bdf
from readings import bad, file, findings, of, port

from busbw.core.finding import Verdict
from busbw.core.sizes import span

PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


AER = f"/sys/bus/pci/devices/{gpu_bdf(2)}/aer_dev_correctable"


MEMORY = "/sys/devices/system/edac/mc/mc0/ce_count"


def statistics(**values):
    return lambda tree: tree.update("ethtool -S eth3", **values)


RATES = [
    # Name, counter, value before, value now, seconds, verdict: the limit is a rate, whatever the
    # total.
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 60_000, 60_001, 60, PASS),
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 60_000, 60_040, 60, WARN),
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 0, 4, 10, WARN),
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 0, 2, 10, PASS),
    ("nic-symbol-errors", lambda value: port("local_link_integrity_errors", value), 3, 3, 10, PASS),
    ("nic-symbol-errors", lambda value: port("local_link_integrity_errors", value), 3, 4, 10, WARN),
    # nothing is known of these seconds
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 65_535, 65_535, 10, WARN),
    # a wider counter of a newer driver
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 70_000, 70_001, 60, PASS),
    # set to 0 meanwhile
    ("nic-symbol-errors", lambda value: port("symbol_error", value), 500, 40, 60, WARN),
    ("nic-flap", lambda value: port("link_downed", value), 40, 40, 60, PASS),
    ("nic-flap", lambda value: port("link_downed", value), 40, 41, 60, WARN),
    ("nic-flap", lambda value: port("link_downed", value), 40, 44, 86_400, PASS),
    ("nic-flap", lambda value: file(f"{NET}/carrier_down_count", value), 40, 60, 86_400, WARN),
    (
        "nic-ber",
        lambda value: statistics(
            rx_bits_phy=10**17 + value * 10**7, rx_corrected_bits_phy=10**8 + value
        ),
        0,
        10**6,
        60,
        PASS,
    ),
    (
        "nic-ber",
        lambda value: statistics(
            rx_bits_phy=10**17 + value * 10**6, rx_corrected_bits_phy=10**8 + value
        ),
        0,
        10**6,
        60,
        WARN,
    ),
    (
        "nic-discards",
        lambda value: statistics(
            rx_discards_phy=10**6 + value, rx_packets_phy=10**10 + 10**6 * value
        ),
        0,
        1,
        60,
        PASS,
    ),
    (
        "nic-discards",
        lambda value: statistics(rx_discards_phy=value, rx_packets_phy=10**10 + 10**5 * value),
        0,
        9,
        60,
        WARN,
    ),
    (
        "nic-pci-stalls",
        lambda value: statistics(outbound_pci_stalled_wr_events=value),
        5000,
        5000,
        60,
        PASS,
    ),
    (
        "nic-pci-stalls",
        lambda value: statistics(outbound_pci_stalled_wr_events=value),
        5000,
        5003,
        60,
        WARN,
    ),
    (
        "nic-retransmissions",
        lambda value: port("req_transport_retries_exceeded", value, "hw_counters"),
        50,
        50,
        60,
        PASS,
    ),
    (
        "nic-retransmissions",
        lambda value: port("req_transport_retries_exceeded", value, "hw_counters"),
        50,
        60,
        60,
        WARN,
    ),
    ("roce-storm", lambda value: statistics(tx_pause_storm_error_events=value), 5, 5, 60, PASS),
    ("roce-storm", lambda value: statistics(tx_pause_storm_error_events=value), 5, 6, 60, WARN),
    # none was handled meanwhile
    ("roce-cnp", lambda value: port("rp_cnp_ignored", value, "hw_counters"), 0, 10, 60, WARN),
    ("nic-module", lambda value: statistics(module_high_temp=value), 1, 1, 60, PASS),
]


@pytest.mark.parametrize(("name", "counter", "before", "count_now", "seconds", "verdict"), RATES)
def test_two_readings_decide(name, counter, before, count_now, seconds, verdict):
    checked = findings(name, counter(count_now), before=[counter(before)], seconds=seconds)
    assert bad(checked) == ({} if verdict is PASS else {"mlx5_3": verdict})
    assert span(seconds) in of(checked).message or before == 65_535


@pytest.mark.parametrize(
    ("name", "subject", "counter", "before", "count_now", "seconds", "verdict"),
    [
        (
            "pcie-aer-correctable",
            "GPU 2",
            lambda value: file(AER, f"BadTLP {value}"),
            9000,
            9020,
            60,
            PASS,
        ),
        (
            "pcie-aer-correctable",
            "GPU 2",
            lambda value: file(AER, f"BadTLP {value}"),
            9000,
            9100,
            60,
            WARN,
        ),
        ("mem-errors", "mc0", lambda value: file(MEMORY, value), 500, 500, 60, PASS),
        ("mem-errors", "mc0", lambda value: file(MEMORY, value), 500, 502, 60, WARN),
        (
            "nvlink-errors",
            "GPU 2",
            lambda value: gpu_changed(links=_links(value)),
            505,
            505,
            60,
            PASS,
        ),
        (
            "nvlink-errors",
            "GPU 2",
            lambda value: gpu_changed(links=_links(value)),
            505,
            506,
            60,
            WARN,
        ),
    ],
)
def test_two_readings_decide_beyond_the_network(
    name, subject, counter, before, count_now, seconds, verdict
):
    checked = findings(name, counter(count_now), before=[counter(before)], seconds=seconds)
    assert bad(checked) == ({} if verdict is PASS else {subject: verdict})


def _links(recoveries):
    return [
        {
            "number": number,
            "active": True,
            "remote": 2,
            "version": 7,
            "speed_mbps": 26562,
            "errors": {"replay": 0, "recovery": recoveries if number == 3 else 0, "crc_flit": 0},
        }
        for number in range(18)
    ]


@pytest.mark.parametrize(
    ("name", "counter", "value", "verdict"),
    [
        ("nic-symbol-errors", "symbol_error", 65_535, WARN),
        ("nic-symbol-errors", "port_rcv_errors", 65_535, WARN),
        ("nic-symbol-errors", "link_error_recovery", 255, FAIL),
        ("nic-symbol-errors", "local_link_integrity_errors", 15, WARN),
        ("nic-symbol-errors", "excessive_buffer_overrun_errors", 15, WARN),
        ("nic-flap", "link_downed", 255, FAIL),
        ("nic-discards", "port_xmit_discards", 65_535, WARN),
    ],
)
@pytest.mark.parametrize("uptime_s", [60, 22.8 * 86_400, 900 * 86_400])
def test_a_counter_at_its_maximum_is_never_right(name, counter, value, verdict, uptime_s):
    checked = findings(
        name, port(counter, value), file("/proc/uptime", f"{uptime_s} 1.0"), layer="InfiniBand"
    )
    assert bad(checked) == {"mlx5_3": verdict}
    finding = of(checked)
    assert (
        "the most that" in finding.message
        and "perfquery -C mlx5_3 -P 1 -R" in finding.fix
        and "the most that it can hold" in finding.evidence[0].seen
    )


def test_saturated_counters_of_a_host_that_is_up_for_weeks():
    full = (
        port("symbol_error", 65_535),
        port("link_error_recovery", 255),
        file("/proc/uptime", f"{22.8 * 86_400} 1.0"),
    )
    assert bad(findings("nic-symbol-errors", *full)) == {"mlx5_3": FAIL}


def test_a_total_is_marked_as_without_a_known_rate():
    finding = of(findings("nic-symbol-errors", port("symbol_error", 5000)))
    assert (
        "5000 errors since the driver was loaded" in finding.message
        and "how fast they rise is not known" in finding.message
    )
    assert finding.fix.startswith("busbw check --only nic-symbol-errors --watch-for 60")
