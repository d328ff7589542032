"""Findings on a machine's counters: they name what was unusual in slow rows, and only parts that
the run used.
"""

from collections.abc import Mapping

import pytest

from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.telemetry import TCP, HostChange, XidEvent
from busbw.core.topology import Host, Nic, Topology
from busbw.model.findings import findings
from busbw.model.machine_findings import RULES
from busbw.model.rule import Run, apply
from busbw.model.series import series
from busbw.model.telemetry_signs import expected_s, slow_rows

K, M = 1 << 10, 1 << 20
SIZES = [1 * K << step for step in range(21)]  # 1 KiB to 1 GiB
ALPHA_S, RATE = 20e-6, 300e9
LAST = len(SIZES) - 1


def cell(size: int, factor: float = 1.0) -> Cell:
    seconds = (ALPHA_S + size / RATE) * factor
    return Cell(seconds, size / seconds, size / seconds, wrong=0)


def run(
    changes: Mapping[int, HostChange],
    slow: Mapping[int, float] | None = None,
    usual: HostChange | None = None,
) -> Result:
    """A smooth sweep over GPUs 0 to 3 of h1 and h2 whose rows `slow` take so many times longer;
    `changes` by the row's place.
    """
    devices = [
        RankDevice(4 * h + i, 1, f"h{h + 1}", i, f"0000:{i:02x}:00", "GPU")
        for h in range(2)
        for i in range(4)
    ]
    factors, quiet = slow or {}, {name: HostChange(name, 1.0) for name in ("h1", "h2")}
    rows = []
    for at, size in enumerate(SIZES):
        change = changes.get(at, usual or quiet["h1"])
        machine = list((quiet | {change.host: change}).values())
        rows.append(
            ResultRow(
                size,
                size,
                "float",
                "sum",
                -1,
                cell(size),
                cell(size, factors.get(at, 1.0)),
                20,
                machine=machine,
            )
        )
    topology = Topology(
        [
            Host(name, nics=[Nic("mlx5_0", "roce", netdev="eth0"), Nic("eth0", "ethernet")])
            for name in ("h1", "h2")
        ]
    )
    return Result(
        SweepSpec(collective="all_reduce"),
        library=EngineLibrary("nccl"),
        world=World(devices, 8),
        topology=topology,
        rows=rows,
        complete=True,
    )


def judged(result: Result) -> dict[str, RunFinding]:
    by_id = {finding.id: finding for finding in apply(RULES, Run(result, result.topology))}
    assert all(len(finding.message) < 400 for finding in by_id.values())
    assert "cause" not in " ".join(finding.message for finding in by_id.values())
    return by_id


LOSS = HostChange(
    "h1",
    1.0,
    sent={"eth0": 10**9, "mlx5_0": 2 * 10**9},
    moved={TCP: {"RetransSegs": 1523, "TCPTimeouts": 2}},
)
HOT = HostChange(
    "h2",
    1.0,
    sm_mhz=[1980, 1980, 1980, 1410],
    sm_before_mhz=[1980] * 4,
    throttled={"0000:03:00": {"hw_thermal_slowdown": None}},
)


def one_host(result: Result) -> Result:
    result.world.devices = [device for device in result.world.devices if device.host == "h1"]
    for row in result.rows:
        row.machine = [change for change in row.machine or [] if change.host == "h1"]
    return result


def test_ports_and_tcp_are_not_named_for_a_run_within_one_host() -> None:
    down = HostChange("h1", 1.0, sent={"eth0": 10**9}, moved={"eth0": {"carrier_down_count": 1}})
    assert judged(one_host(run({16: LOSS, 17: down}, {16: 1.41}))) == {}
    without = one_host(run({16: LOSS}, {16: 1.41}))
    # the network is all that NCCL has left
    without.environment = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    assert "machine" in judged(without)


def test_a_port_that_carried_none_of_the_data_is_not_named() -> None:
    idle = HostChange(
        "h1", 1.0, sent={"eth0": 1000, "mlx5_0": 2 * 10**9}, moved={"eth0": {"rx_errors": 500}}
    )
    assert judged(run({16: idle}, {16: 1.41})) == {}


def test_a_fault_of_an_unused_port_is_not_named() -> None:
    down = HostChange(
        "h1", 1.0, sent={"mlx5_0": 2 * 10**9}, moved={"eth0": {"carrier_down_count": 1}}
    )
    assert judged(run({16: down})) == {}
    used = HostChange("h1", 1.0, sent={"eth0": 10**9})
    assert (
        "h1 eth0: carrier_down_count +1"
        in judged(run({16: down}, usual=used))["machine_fault"].message
    )


def test_tcp_is_not_named_for_a_run_over_rdma() -> None:
    result = run({16: LOSS}, {16: 1.41})
    result.library.network = "IB"
    assert judged(result) == {}


def test_unread_counters_of_an_unused_network_are_not_named() -> None:
    hot = HostChange(
        "h1",
        1.0,
        sm_mhz=[1410] * 4,
        sm_before_mhz=[1980] * 4,
        throttled={"0000:03:00": {"hw_thermal_slowdown": None}},
        unread=[
            "tcp RetransSegs: it was reset",
            "eth0 rx_errors: it was reset",
            "/dev/kmsg: permission denied",
        ],
    )
    evidence = judged(one_host(run({16: hot}, {16: 1.5})))["machine"].evidence
    assert evidence.endswith("; not read: /dev/kmsg: permission denied")


def test_a_slow_row_and_tcp_loss_that_coincided() -> None:
    by_id = judged(run({16: LOSS}, {16: 1.41}))
    assert list(by_id) == ["machine"] and by_id["machine"].verdict is Verdict.WARN
    # Between two neighbours the time is interpolated over logarithms, which lies a little above the
    # true curve here.
    assert (
        by_id["machine"].message
        == "64 MiB in place took 38 % longer than its neighbors suggest; at the same time h1 eth0:"
        " RetransSegs +1,523 (segments retransmitted), TCPTimeouts +2 (retransmission timeouts)"
    )
    assert "does not prove it to be the cause" in by_id["machine"].evidence


def test_a_gpu_that_was_throttled_in_the_last_row() -> None:
    by_id = judged(run({LAST: HOT}, {LAST: 1.25}))
    assert list(by_id) == ["machine"]
    message = by_id["machine"].message
    assert message.startswith("1 GiB in place took 2")
    assert message.endswith(
        "at the same time h2 GPU 3: clocks reduced by hw_thermal_slowdown, 1980 -> 1410 MHz"
    )


def test_several_bad_rows_are_one_finding_led_by_the_worst() -> None:
    by_id = judged(run({16: LOSS, 17: LOSS, 18: LOSS}, {16: 1.2, 17: 1.9, 18: 1.3}))
    assert by_id["machine"].message.startswith("128 MiB in place took 82 % longer")
    assert by_id["machine"].message.endswith(". The same for 256 MiB, 64 MiB")


def test_a_row_several_times_slower() -> None:
    message = judged(run({16: LOSS}, {16: 5}))["machine"].message
    assert message.startswith("64 MiB in place took 4.9 times as long as its neighbors suggest")


def test_a_counter_that_moved_without_a_slow_row_is_a_note() -> None:
    by_id = judged(run({16: LOSS}))
    assert list(by_id) == ["machine_note"] and by_id["machine_note"].verdict is Verdict.PASS
    assert by_id["machine_note"].message.endswith("in 1 of 21 rows; no row was slower with it")


def test_a_slow_row_without_a_sign_gives_no_finding() -> None:
    assert judged(run({}, {16: 1.5})) == {}


def test_a_counter_that_moves_in_every_row_is_unknown() -> None:
    by_id = judged(run(dict.fromkeys(range(len(SIZES)), LOSS), {16: 1.5}))
    assert list(by_id) == ["machine_note"] and by_id["machine_note"].verdict is Verdict.UNKNOWN
    assert "21 of 21 rows; too few rows are without it" in by_id["machine_note"].message


def test_ten_times_the_usual_loss_in_a_slow_row_is_reported() -> None:
    little = HostChange("h1", 1.0, sent={"eth0": 10**9}, moved={TCP: {"RetransSegs": 120}})
    by_id = judged(run({16: LOSS}, {16: 1.5}, usual=little))
    assert (
        by_id["machine"].message.startswith("64 MiB")
        and by_id["machine_note"].verdict is Verdict.UNKNOWN
    )


def test_a_constantly_hot_gpu_gets_verdict_unknown() -> None:
    by_id = judged(run(dict.fromkeys(range(len(SIZES)), HOT)))
    assert by_id["machine_note"].verdict is Verdict.UNKNOWN


def test_the_power_limit_is_a_sign_only_if_the_clock_fell() -> None:
    capped = {"0000:00:00": {"sw_power_cap": None, "power_policy": 0.4}}
    assert (
        judged(run({16: HostChange("h1", 1.0, sm_mhz=[1980] * 4, throttled=capped)}, {16: 1.5}))
        == {}
    )
    fell = HostChange(
        "h1", 1.0, sm_mhz=[1600, 1980, 1980, 1980], sm_before_mhz=[1980] * 4, throttled=capped
    )
    assert (
        "h1 GPU 0: clocks reduced by sw_power_cap, power_policy, 1980 -> 1600 MHz"
        in judged(run({16: fell}, {16: 1.5}))["machine"].message
    )


@pytest.mark.parametrize(("sent", "segments"), [(10**6, 3), (10**9, 60)])
def test_a_few_stray_segments_prove_nothing(sent: int, segments: int) -> None:
    stray = HostChange(
        "h1", 1.0, sent={"eth0": sent}, moved={TCP: {"RetransSegs": segments, "TCPLossProbes": 2}}
    )
    assert judged(run({16: stray}, {16: 1.5})) == {}


@pytest.mark.parametrize(
    ("stopped", "wider", "what"),
    [
        ("unstable", 1.3, "did not settle"),
        ("budget", 1.3, "has a confidence interval of +-30 %"),
        ("budget", 106.3, "is not known within a factor of 10"),
    ],
)
def test_a_row_whose_own_interval_is_wide_counts_as_bad(
    stopped: str, wider: float, what: str
) -> None:
    result = run({16: LOSS})
    bad = result.rows[16].in_place
    assert bad is not None
    bad.stopped, bad.low_s, bad.high_s = stopped, bad.time_s * 0.98, bad.time_s * wider
    expected = f"64 MiB in place {what}"
    assert judged(result)["machine"].message.startswith(f"{expected}; at the same time h1 eth0")


def test_congestion_and_loss_of_rdma_ports_name_the_port() -> None:
    busy = HostChange("h2", 0.5, moved={"mlx5_0": {"rp_cnp_handled": 5200, "packet_seq_err": 12}})
    message = judged(run({18: busy}, {18: 1.3}))["machine"].message
    assert message.endswith(
        "h2 mlx5_0: packet_seq_err +12 (the receiver reported a missing packet), rp_cnp_handled"
        " +5,200 (congestion notifications received)"
    )


@pytest.mark.parametrize(
    ("kind", "ticks", "sign"),
    [
        ("ib", 5 * 10**8, ""),  # a healthy port: 8 % of the time at 50 GB/s
        (
            "ib",
            10**9,
            "h2 mlx5_0: port_xmit_wait +1,000,000,000 (data waited for credits, at least 16 %",
        ),
        # ticks shorter than the shortest that is documented
        (
            "ib",
            10**10,
            "h2 mlx5_0: port_xmit_wait +10,000,000,000 (data waited for credits, at least 100 %",
        ),
        ("roce", 10**9, ""),  # Ethernet has no credits
    ],
)
def test_waits_for_credits_are_judged_as_a_share_of_the_time(
    kind: str, ticks: int, sign: str
) -> None:
    busy = HostChange(
        "h2", 1.0, sent={"mlx5_0": 10**9}, moved={"mlx5_0": {"port_xmit_wait": ticks}}
    )
    result = run({18: busy}, {18: 1.3})
    for host in result.topology.hosts:
        host.nics[:] = [Nic("mlx5_0", kind, rate=50e9)]
    finding = judged(result).get("machine")
    assert finding is None if not sign else finding and f"{sign} of the time)" in finding.message


def test_xids_and_faults_are_reported_without_a_slow_row() -> None:
    broken = HostChange(
        "h1",
        1.0,
        events=[XidEvent("0000:02:00", 74, 3), XidEvent("0000:99:00", 31)],
        moved={"0000:02:00": {"ecc_uncorrected": 1}},
    )
    by_id = judged(run({3: broken}))
    assert [finding.verdict for finding in by_id.values()] == [Verdict.WARN, Verdict.WARN]
    assert (
        by_id["machine_xid"].message
        == "Xid 74 (NVLink error) x 3 on h1 GPU 2 (0000:02:00) during 8 KiB"
    ), "not the unused GPU"
    assert (
        "drain the host first" in by_id["machine_xid"].fix
        and "-i 0000:02:00.0" in by_id["machine_xid"].fix
    )
    other = HostChange("h2", 1.0, moved={"0000:99:00": {"ecc_uncorrected": 1}})
    assert judged(run({3: other}))["machine_fault"].message.startswith("h2 GPU 0000:99:00: "), (
        "not of the run"
    )
    assert by_id["machine_fault"].message.startswith(
        "h1 GPU 2: ecc_uncorrected +1 (memory errors that ECC could not correct"
    )


def test_the_evidence_lists_unreadable_values() -> None:
    blind = HostChange("h1", 1.0, moved=LOSS.moved, unread=["/dev/kmsg: permission denied"])
    by_id = judged(run({16: blind}, {16: 1.5}))
    assert by_id["machine"].evidence.endswith("; not read: /dev/kmsg: permission denied")
    assert "h1 TCP: RetransSegs" in by_id["machine"].message, "no interface sent: none is named"


def test_a_run_without_readings_has_no_findings_about_machines() -> None:
    result = run({})
    for row in result.rows:
        row.machine = None
    assert judged(result) == {}


def test_findings_of_a_run_hold_those_of_the_machine() -> None:
    result = run({16: LOSS}, {16: 1.41})
    assert "machine" in [finding.id for finding in findings(result, result.topology)]


def test_expected_times_come_from_rows_without_signs() -> None:
    figures = series(run({}))[0]
    middle = expected_s(figures, 10, lambda _: False)
    assert middle == pytest.approx(figures[10].cell.time_s, rel=0.07)
    assert expected_s(figures, 0, lambda _: False) == figures[1].cell.time_s
    assert expected_s(figures, LAST, lambda _: False) == pytest.approx(
        2 * figures[LAST - 1].cell.time_s
    )
    assert expected_s(figures, 5, lambda _: True) is None


def test_no_row_of_a_smooth_sweep_is_slow() -> None:
    assert slow_rows(run({}), lambda row: row.size_bytes in SIZES[3::4]) == []
    assert slow_rows(run({}), lambda row: row.size_bytes not in SIZES[3::4]) == []
