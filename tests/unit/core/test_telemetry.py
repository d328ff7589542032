"""The change between two readings of a host contains only counters that changed, and lists those
that are unknown.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core import json_codec
from busbw.core.counters import CounterKind, Owner, counters_by_name, counters_of
from busbw.core.telemetry import (
    EVENTS_KEPT,
    MOVED_KEPT,
    POLICY_SEVERITY,
    PORTS_KEPT,
    TCP,
    GpuReading,
    HostChange,
    HostReading,
    XidEvent,
    all_clock_reasons,
    change,
    clock_reasons,
    increase,
    reason_severity,
)

U32 = 1 << 32


def reading(
    at_s: float = 0.0, gpus: list[GpuReading] | None = None, **counters: dict[str, int]
) -> HostReading:
    return HostReading("h1", at_s, gpus or [], counters)


def test_only_changed_counters_are_kept_and_traffic_separately() -> None:
    before = reading(
        1.0,
        eth0={"tx_bytes": 100, "rx_bytes": 7, "rx_errors": 3, "tx_dropped": 1},
        tcp={"RetransSegs": 10, "TCPTimeouts": 2},
    )
    after = reading(
        3.5,
        eth0={"tx_bytes": 350, "rx_bytes": 7, "rx_errors": 3, "tx_dropped": 5},
        tcp={"RetransSegs": 1533, "TCPTimeouts": 2},
    )
    host_change = change(before, after)
    assert host_change == HostChange(
        "h1", 2.5, sent={"eth0": 250}, moved={"eth0": {"tx_dropped": 4}, TCP: {"RetransSegs": 1523}}
    )
    assert (
        json_codec.encode(host_change)
        == b'{"host":"h1","seconds":2.5,"sent":{"eth0":250},"moved":{"eth0":{"tx_dropped":4},"tcp":{"RetransSegs":1523}}}'
    )


def test_rdma_data_counters_are_in_units_of_four_bytes() -> None:
    host_change = change(
        reading(mlx5_0={"port_xmit_data": 5, "port_rcv_data": 1}),
        reading(mlx5_0={"port_xmit_data": 30, "port_rcv_data": 2}),
    )
    assert (host_change.sent, host_change.received) == ({"mlx5_0": 100}, {"mlx5_0": 4})


@pytest.mark.parametrize(
    ("name", "before", "after", "by"),
    [
        ("packet_seq_err", 5, 9, 4),
        ("packet_seq_err", U32 - 3, 4, 7),  # wrapped
        ("packet_seq_err", 1000, 4, None),  # reset
        ("np_cnp_sent", U32 - 3, 4, None),  # a 64-bit counter did not wrap
        ("link_downed", 254, 255, 1),
        ("link_downed", 255, 255, None),  # saturated: it cannot increase
        ("symbol_error", 255, 300, 45),
        ("symbol_error", 1 << 16, 1 << 17, 1 << 16),  # a driver with a wider counter
        ("port_xmit_wait", U32 - 3, 4, None),  # 32 bits, but it saturates
        ("port_xmit_data", 10, 10, 0),
    ],
)
def test_increases_of_wrapping_saturating_and_reset_counters(
    name: str, before: int, after: int, by: int | None
) -> None:
    assert increase(counters_by_name()[name], before, after) == by


@given(st.integers(0, U32 - 1), st.integers(0, U32 // 2 - 1))
def test_a_wrapping_counter_gives_the_true_increase(before: int, by: int) -> None:
    counter = counters_by_name()["out_of_sequence"]
    assert increase(counter, before, (before + by) % U32) == by


def test_a_counter_unknown_to_this_version_is_ignored() -> None:
    assert change(reading(tcp={"NewDrops": 1}), reading(tcp={"NewDrops": 5})).moved == {}


def test_an_unknown_increase_is_listed_instead_of_zero() -> None:
    before = reading(mlx5_0={"link_downed": 255, "out_of_buffer": 500, "np_cnp_sent": 3})
    host_change = change(
        before,
        reading(
            mlx5_0={"link_downed": 255, "out_of_buffer": 3, "np_cnp_sent": 3, "rp_cnp_handled": 9}
        ),
    )
    assert host_change.moved == {}, "rp_cnp_handled was unknown before"
    assert host_change.unread == [
        "mlx5_0 link_downed: it is saturated",
        "mlx5_0 out_of_buffer: it was reset",
    ]


def gpu(sm: int | None, reasons: int | None = None, **counters: int) -> GpuReading:
    return GpuReading("0000:1b:00", sm, 1980, 2619, 2619, reasons, 64, 512, counters)


def test_a_throttled_gpu_shows_clocks_reasons_and_durations() -> None:
    before = gpu(1980, 0x0, thermal_policy=10**9, ecc_corrected=4, nvlink_replay=7)
    host_change = change(
        reading(0, [before]),
        reading(2, [gpu(1410, 0x48, thermal_policy=15 * 10**8, ecc_corrected=6, nvlink_replay=7)]),
    )
    assert (
        host_change.sm_mhz,
        host_change.sm_before_mhz,
        host_change.sm_max_mhz,
        host_change.memory_mhz,
    ) == ([1410], [1980], [1980], [])
    assert (host_change.temperature_c, host_change.power_w) == ([64], [512])
    assert host_change.throttled == {
        "0000:1b:00": {"thermal_policy": 0.5, "hw_slowdown": None, "hw_thermal_slowdown": None}
    }
    assert host_change.moved == {"0000:1b:00": {"ecc_corrected": 2}}


def test_an_idle_gpu_at_its_set_clocks_is_not_throttled() -> None:
    assert change(reading(0, [gpu(1980, 0x1)]), reading(1, [gpu(1980, 0x3)])).throttled == {}


def test_a_gpu_without_readings_is_unknown() -> None:
    silent = GpuReading("0000:43:00")
    host_change = change(reading(0, [gpu(1980), silent]), reading(1, [gpu(1980), silent]))
    assert (host_change.sm_mhz, host_change.power_w, host_change.sm_before_mhz) == (
        [1980, None],
        [512, None],
        [],
    )
    nothing = change(reading(0, [silent]), reading(1, [silent]))
    assert (nothing.sm_mhz, nothing.temperature_c) == ([], [])


def test_the_size_of_a_change_is_bounded() -> None:
    ports = {f"v{number:03}": {"tx_bytes": number, "tx_dropped": 1} for number in range(300)}
    events = [XidEvent(f"0000:{number:02x}:00", 31) for number in range(64)]
    host_change = change(
        reading(**{name: {"tx_bytes": 0, "tx_dropped": 0} for name in ports}),
        HostReading("h1", 1, [], ports, events),
    )
    assert len(host_change.sent) == PORTS_KEPT and min(host_change.sent) == "v284"
    assert (len(host_change.events), len(host_change.moved)) == (EVENTS_KEPT, MOVED_KEPT)


def test_thirty_rows_of_two_eight_gpu_hosts_fit_into_50_kb() -> None:
    """Indented as in result files: healthy GPUs, and ports with active congestion control."""

    def host(at_s: float, step: int) -> HostReading:
        gpus = [
            GpuReading(f"0000:{number:02x}:00", 1980, 1980, 2619, 2619, 0, 41 + step, 500 + number)
            for number in range(8)
        ]
        ports = {
            f"mlx5_{number}": {
                "port_xmit_data": step * 123456789,
                "port_rcv_data": step * 123456788,
            }
            for number in range(8)
        }
        busy = {"mlx5_0": {**ports["mlx5_0"], "np_cnp_sent": step, "rp_cnp_handled": 2 * step}}
        return HostReading("node-0001", at_s, gpus, ports | busy)

    host_change = change(host(0, 0), host(1.5, 1))
    assert (host_change.power_w[7], len(host_change.sent)) == (507, 8)
    assert 60 * len(msgspec.json.format(msgspec.json.encode(host_change), indent=1)) < 50_000


def test_counters_are_in_order_of_owners_and_throttling_has_a_severity() -> None:
    every = tuple(counters_by_name().values())
    assert tuple(counter for place in Owner for counter in counters_of(place)) == every
    assert (
        {counter.name for counter in every if counter.kind is CounterKind.THROTTLE}
        == POLICY_SEVERITY.keys()
        <= reason_severity().keys()
    )
    assert all(
        counter.owner is Owner.GPU for counter in every if counter.kind is CounterKind.THROTTLE
    )


def test_clock_reasons_are_the_bits_of_nvml() -> None:
    nvml = pytest.importorskip("pynvml")
    names = {
        getattr(nvml, name): name
        for name in dir(nvml)
        if name.startswith("nvmlClocksEventReason") and not name.endswith(("All", "None"))
    }
    assert set(names) == {reason.bit for reason in all_clock_reasons()}
    assert clock_reasons(0x44) == ["sw_power_cap", "hw_thermal_slowdown"]
    assert clock_reasons(0) == [] and clock_reasons(0x401) == ["gpu_idle", "0x400"]


def test_counters_of_gpus_are_fields_of_nvml() -> None:
    nvml = pytest.importorskip("pynvml")
    assert [
        counter.read_from
        for counter in counters_of(Owner.GPU)
        if not isinstance(getattr(nvml, counter.read_from, None), int)
    ] == []
