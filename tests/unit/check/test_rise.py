"""The rise of a counter, and which counter a finding names."""

import pytest
from cases_nic import PORT, bonded
from healthy_gpu import changed as gpu_changed
from readings import bad, file, findings, of, port
from tree import Tree

from busbw.check.machine import Machine
from busbw.check.rates import Count, interval_s, risen, too_fast
from busbw.core.finding import Verdict

PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("counters", "fix_part", "not_named"),
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
def test_advice_is_of_the_counter(counters, fix_part, not_named):
    fix = of(
        findings(
            "nic-symbol-errors",
            *(port(name, value) for name, value in counters.items()),
            layer="InfiniBand",
        )
    ).fix
    assert fix_part in fix and not_named not in fix
    assert ("without credits" in fix) == ("excessive_buffer_overrun_errors" in counters)


def test_first_finding_of_a_group_is_the_worst():
    counts = {1: 200, 4: 65_000, 6: 900}
    changes = [
        file(f"/sys/class/infiniband/mlx5_{index}/ports/1/counters/symbol_error", value)
        for index, value in counts.items()
    ]
    subjects = [
        finding.subject
        for finding in findings("nic-symbol-errors", *changes)
        if finding.verdict is WARN
    ]
    assert subjects == ["mlx5_4", "mlx5_6", "mlx5_1"]


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
    finding = of(findings("nic-ber", corrected, tree=tree), "mlx5_0")
    assert (
        finding.verdict is WARN
        and finding.evidence[0].where.startswith("ethtool -S eth1:")
        and "9.0e-07" in finding.message
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
    finding = of(
        findings(
            "nic-retransmissions",
            port("packet_seq_err", 10**6, "hw_counters"),
            before=without,
            seconds=60,
        )
    )
    assert finding.verdict is WARN and "since the driver was loaded" in finding.message


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
    before, source_now = (tree.source() for tree in trees)
    assert interval_s(Machine(source_now, Machine(before))) == seconds
    assert interval_s(Machine(source_now)) is None


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
def test_worst_gpu_of_a_group_is_first(name, mild, bad_one):
    assert list(bad(findings(name, mild, bad_one))) == ["GPU 5", "GPU 1"]


def test_port_with_the_lowest_rate_is_first():
    def slow(index, text):
        return file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", text)

    assert list(
        bad(findings("nic-rate", slow(1, "200 Gb/sec (4X HDR)"), slow(6, "100 Gb/sec (4X EDR)")))
    ) == ["mlx5_6", "mlx5_1"]
