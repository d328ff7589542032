"""How fast counters rise: two readings say it, a total does not, and a counter at its maximum
says nothing more.
"""

import pytest
from cases_nic import NET, PORT, bonded
from healthy import healthy
from healthy_gpu import changed as gpu_changed
from healthy_pcie import gpu_bdf
from tree import Tree

from busbw.check.machine import Machine
from busbw.check.rates import Count, interval_s, risen, too_fast
from busbw.check.registry import find
from busbw.check.types import Checked
from busbw.core.finding import Verdict
from busbw.core.sizes import span

PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
AER = f"/sys/bus/pci/devices/{gpu_bdf(2)}/aer_dev_correctable"
MEMORY = "/sys/devices/system/edac/mc/mc0/ce_count"


def file(path, value):
    return lambda tree: tree.file(path, str(value))


def port(name, value, folder="counters"):
    return file(f"{PORT}/{folder}/{name}", value)


def statistics(**values):
    return lambda tree: tree.update("ethtool -S eth3", **values)


def findings(
    name: str, *changes, before=(), seconds: float = 0.0, tree: Tree | None = None, layer="Ethernet"
) -> list[Checked]:
    """The findings after the changes; with `seconds` there was an earlier reading, with the
    changes of `before`.
    """
    now = tree or healthy(layer=layer)
    for change in changes:
        change(now)
    if not seconds:
        return find(name).run(Machine(now.source()))
    was = healthy(layer=layer)
    for change in before:
        change(was)
    now.file("/proc/uptime", f"{100_000 + seconds} 1.0")
    return find(name).run(Machine(now.source(), Machine(was.source())))


def bad(found: list[Checked]) -> dict[str, Verdict]:
    return {one.subject: one.verdict for one in found if one.verdict not in (PASS, Verdict.SKIP)}


def of(found: list[Checked], subject: str = "mlx5_3") -> Checked:
    (one,) = [one for one in found if one.subject == subject]
    return one


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


@pytest.mark.parametrize(("name", "counter", "before", "now", "seconds", "verdict"), RATES)
def test_two_readings_decide(name, counter, before, now, seconds, verdict):
    found = findings(name, counter(now), before=[counter(before)], seconds=seconds)
    assert bad(found) == ({} if verdict is PASS else {"mlx5_3": verdict})
    assert span(seconds) in of(found).message or before == 65_535


@pytest.mark.parametrize(
    ("name", "subject", "counter", "before", "now", "seconds", "verdict"),
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
    name, subject, counter, before, now, seconds, verdict
):
    found = findings(name, counter(now), before=[counter(before)], seconds=seconds)
    assert bad(found) == ({} if verdict is PASS else {subject: verdict})


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
    found = findings(
        name, port(counter, value), file("/proc/uptime", f"{uptime_s} 1.0"), layer="InfiniBand"
    )
    assert bad(found) == {"mlx5_3": verdict}
    one = of(found)
    assert (
        "the most that" in one.message
        and "perfquery -C mlx5_3 -P 1 -R" in one.fix
        and "the most that it can hold" in one.evidence[0].seen
    )


def test_saturated_counters_of_a_host_that_is_up_for_weeks():
    full = (
        port("symbol_error", 65_535),
        port("link_error_recovery", 255),
        file("/proc/uptime", f"{22.8 * 86_400} 1.0"),
    )
    assert bad(findings("nic-symbol-errors", *full)) == {"mlx5_3": FAIL}


def test_a_total_says_that_its_rate_is_not_known():
    found = of(findings("nic-symbol-errors", port("symbol_error", 5000)))
    assert (
        "5000 errors since the driver was loaded" in found.message
        and "how fast they rise is not known" in found.message
    )
    assert found.fix.startswith("busbw check --only nic-symbol-errors --watch-for 60")


@pytest.mark.parametrize(
    ("counters", "named", "not_named"),
    [
        ({"symbol_error": 500}, "cable of mlx5_3", "credits"),
        (
            {"excessive_buffer_overrun_errors": 2},
            "smpquery -C mlx5_3 -P 1 -D portinfo 0 1",
            "reseat",
        ),
        (
            {"symbol_error": 500, "excessive_buffer_overrun_errors": 2},
            "cable of mlx5_3",
            "nothing else",
        ),
    ],
)
def test_advice_is_of_the_counter(counters, named, not_named):
    fix = of(
        findings(
            "nic-symbol-errors",
            *(port(name, value) for name, value in counters.items()),
            layer="InfiniBand",
        )
    ).fix
    assert named in fix and not_named not in fix
    assert ("without credits" in fix) == ("excessive_buffer_overrun_errors" in counters)


def test_first_finding_of_a_group_is_the_worst():
    counts = {1: 200, 4: 65_000, 6: 900}
    changes = [
        file(f"/sys/class/infiniband/mlx5_{index}/ports/1/counters/symbol_error", value)
        for index, value in counts.items()
    ]
    found = [one.subject for one in findings("nic-symbol-errors", *changes) if one.verdict is WARN]
    assert found == ["mlx5_4", "mlx5_6", "mlx5_1"]


def test_worst_slave_of_a_bond_is_named():
    def corrected(tree):
        tree.update("ethtool -S eth0", rx_corrected_bits_phy=3 * 10**10, rx_bits_phy=10**18)
        tree.update("ethtool -S eth1", rx_corrected_bits_phy=9 * 10**10)

    tree = bonded()
    for name in ("eth0", "eth1"):
        tree.link(f"/sys/class/net/{name}/master", "../bond0").link(
            f"/sys/class/net/bond0/lower_{name}", f"../{name}"
        )
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "bond0").drop(
        "/sys/class/infiniband/mlx5_1"
    )
    found = of(findings("nic-ber", corrected, tree=tree), "mlx5_0")
    assert (
        found.verdict is WARN
        and found.evidence[0].where.startswith("ethtool -S eth1:")
        and "9.0e-07" in found.message
    )


def test_work_on_a_switch_takes_all_ports_down():
    def down(times):
        return [
            file(f"/sys/class/infiniband/mlx5_{index}/ports/1/counters/link_downed", times)
            for index in range(8)
        ]

    assert bad(findings("nic-flap", *down(9), before=down(6), seconds=60)) == {}
    assert bad(
        findings("nic-flap", *down(9), port("link_downed", 12), before=down(6), seconds=60)
    ) == {"mlx5_3": WARN}


def test_a_counter_that_was_not_read_before_leaves_only_the_total():
    without = [lambda tree: tree.drop(f"{PORT}/hw_counters/packet_seq_err")]
    found = of(
        findings(
            "nic-retransmissions",
            port("packet_seq_err", 10**6, "hw_counters"),
            before=without,
            seconds=60,
        )
    )
    assert found.verdict is WARN and "since the driver was loaded" in found.message


def test_rise_of_a_counter():
    assert risen("rx_crc_errors_phy", 5, 9) == 4
    assert risen("rx_crc_errors_phy", 9, 5) == 5  # reset: all it shows is new
    assert risen("packet_seq_err", 2**32 - 2, 3) == 5  # wrapped
    assert risen("symbol_error", 65_535, 65_535) is None
    assert risen("symbol_error", 70_000, 70_010) == 10
    assert (
        Count("symbol_error", 65_535, "").saturated
        and not Count("symbol_error", 65_536, "").saturated
    )


def test_a_rate_is_too_fast_only_beyond_chance():
    assert not too_fast(0, 10, 120) and not too_fast(120, 3600, 120) and not too_fast(1, 1, 120)
    assert too_fast(4, 10, 120) and too_fast(200, 3600, 120)


@pytest.mark.parametrize(
    ("uptimes", "times", "seconds"),
    [
        (("100.0 1", "160.5 1"), ("", ""), 60.5),
        (("100.0 1", "100.0 1"), ("2026-11-01T08:00:00+00:00", "2026-11-01T08:01:00+00:00"), 60.0),
        (("", "160.0 1"), ("2026-11-01T08:00:00+00:00", "2026-11-01T08:01:00+00:00"), 60.0),
        (("", "160.0 1"), ("", "2026-11-01T08:01:00+00:00"), None),
        (("160.0 1", "100.0 1"), ("2026-11-01T08:01:00+00:00", "2026-11-01T08:01:00+00:00"), None),
        (("160.0 1", "100.0 1"), ("2026-11-01T08:01:00+00:00", "2026-11-01T08:00:00+00:00"), None),
    ],
)
def test_time_between_two_readings(uptimes, times, seconds):
    trees = [
        Tree().file("/proc/uptime", uptime).call("time", at)
        for uptime, at in zip(uptimes, times, strict=True)
    ]
    before, now = (tree.source() for tree in trees)
    assert interval_s(Machine(now, Machine(before))) == seconds
    assert interval_s(Machine(now)) is None


@pytest.mark.parametrize(
    ("name", "mild", "bad_one"),
    [
        (
            "gpu-temperature",
            gpu_changed(1, margin_c=-1, temperature_c=88),
            gpu_changed(5, margin_c=-9, temperature_c=96),
        ),
        (
            "gpu-ecc-uncorrected",
            gpu_changed(1, uncorrected={"dram": 1, "sram": 0}),
            gpu_changed(5, uncorrected={"dram": 90, "sram": 0}),
        ),
        (
            "gpu-remap-failed",
            gpu_changed(1, remapped=[0, 600, 0, 0]),
            gpu_changed(5, remapped=[0, 0, 0, 1]),
        ),
    ],
)
def test_worst_gpu_of_a_group_stands_first(name, mild, bad_one):
    assert list(bad(findings(name, mild, bad_one))) == ["GPU 5", "GPU 1"]


def test_port_with_the_lowest_rate_stands_first():
    def slow(index, text):
        return file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", text)

    assert list(
        bad(findings("nic-rate", slow(1, "200 Gb/sec (4X HDR)"), slow(6, "100 Gb/sec (4X EDR)")))
    ) == ["mlx5_6", "mlx5_1"]
