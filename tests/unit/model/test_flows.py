"""Traffic of a link, from the rates of its RDMA port and of its interfaces."""

import pytest

from busbw.core.link_samples import ETHERNET, IB, NVLINK, PCIE, ROCE, HostLink
from busbw.model.rates import DOWN, GONE, NEW, CounterRates, flow, flow_of_gone_link

ROCE_PORT = HostLink("mlx5_0", ROCE, 50e9, ("eth0",), device="mlx5_0", port="1")
BOND = HostLink("mlx5_bond_0", ROCE, 50e9, ("eth1", "eth2"), "bond0", "mlx5_bond_0", "1")


def rates(**subjects: dict[str, float]) -> CounterRates:
    return CounterRates({(name, "any"): values for name, values in subjects.items()})


def test_traffic_on_the_wire_comes_before_data_of_rdma():
    port = {"port_xmit_data": 40e9, "port_rcv_data": 1e9}
    assert (flow(ROCE_PORT, rates(mlx5_0=port)).tx, flow(ROCE_PORT, rates(mlx5_0=port)).rx) == (
        40e9,
        1e9,
    )
    port_flow = flow(ROCE_PORT, rates(mlx5_0=port, eth0={"tx_bytes_phy": 41e9}))
    assert (port_flow.tx, port_flow.rx) == (41e9, 1e9)


def test_values_without_a_counter_are_unknown():
    port_flow = flow(ROCE_PORT, CounterRates())
    assert (
        port_flow.tx,
        port_flow.rx,
        port_flow.tx_pause,
        port_flow.cnp_sent,
        port_flow.ecn_marked,
        port_flow.lost,
        port_flow.dropped,
    ) == (None,) * 7


def test_a_bond_is_the_sum_of_its_slaves_and_shows_each():
    port_flow = flow(
        BOND,
        rates(
            eth1={"tx_bytes_phy": 5.0, "rx_discards_phy": 2.0},
            eth2={"tx_bytes_phy": 7.0, "rx_discards_phy": 1.0},
        ),
    )
    assert (port_flow.tx, port_flow.dropped) == (12.0, 3.0)
    assert [(slave.name, slave.tx) for slave in port_flow.slaves] == [("eth1", 5.0), ("eth2", 7.0)]


def test_a_pause_is_the_share_of_time_of_the_most_paused_priority():
    pauses = {
        "rx_prio0_pause_duration": 100.0,
        "rx_prio3_pause_duration": 250_000.0,
        "tx_global_pause_duration": 0.0,
    }
    port_flow = flow(ROCE_PORT, rates(eth0=pauses))
    assert (port_flow.rx_pause, port_flow.tx_pause) == (0.25, 0.0)


def test_pauses_of_slaves_are_not_added():
    port_flow = flow(
        BOND,
        rates(
            eth1={"rx_prio3_pause_duration": 600_000.0}, eth2={"rx_prio3_pause_duration": 700_000.0}
        ),
    )
    assert port_flow.rx_pause == 0.7


def test_a_pause_is_never_more_than_all_of_the_time():
    assert flow(ROCE_PORT, rates(eth0={"rx_prio3_pause_duration": 1_000_400.0})).rx_pause == 1.0


def test_levels_of_slaves_are_not_added():
    port_flow = flow(
        BOND, rates(eth1={"outbound_pci_stalled_wr": 60}, eth2={"outbound_pci_stalled_wr": 70})
    )
    assert port_flow.counters["outbound_pci_stalled_wr"] == 70


def test_rate_of_pcie_is_that_of_its_current_generation_and_lanes():
    slot = HostLink("GPU0 PCIe", PCIE, 63e9, bus="0000:1b:00")
    assert (
        flow(slot, rates(**{"GPU0 PCIe": {"pcie_gen": 4, "pcie_width": 8, "pcie_tx": 9e9}})).rate
        == 15.75e9
    )
    assert flow(slot, CounterRates()).rate == 63e9


def test_nvlink_carries_data():
    link = HostLink("GPU0 NVLink", NVLINK, 450e9, bus="0000:1b:00")
    port_flow = flow(
        link, rates(**{"GPU0 NVLink": {"nvlink_tx": 3e11, "nvlink_rx": 1e11, "nvlink_replay": 2.0}})
    )
    assert (port_flow.tx, port_flow.rx, port_flow.lost) == (3e11, 1e11, 2.0)


def test_drops_of_the_kernel_count_for_interfaces_without_rdma_alone():
    values = {"rx_dropped": 5.0, "tx_bytes": 1.0}
    assert flow(HostLink("eth0", ETHERNET, None, ("eth0",)), rates(eth0=values)).dropped == 5.0
    assert flow(ROCE_PORT, rates(eth0=values)).dropped is None


@pytest.mark.parametrize(
    ("values", "state"),
    [({"state": 4}, ""), ({"state": 1}, DOWN), ({"operational": 0}, DOWN), ({}, "")],
)
def test_state_of_a_port(values, state):
    assert (
        flow(HostLink("mlx5_0", IB, device="mlx5_0", port="1"), rates(mlx5_0=values)).state == state
    )


def test_new_and_removed_links():
    assert flow(ROCE_PORT, CounterRates(), new=True).state == NEW
    assert flow_of_gone_link(ROCE_PORT).state == GONE and flow_of_gone_link(ROCE_PORT).tx is None


def test_unknown_counters_of_an_interface_belong_to_its_port():
    link_rates = CounterRates(
        unknown={
            ("eth0", "ethtool"): {"tx_bytes_phy": "reset"},
            ("eth9", "ethtool"): {"rx_bytes_phy": "reset"},
        }
    )
    assert flow(ROCE_PORT, link_rates).unknown == {"tx_bytes_phy": "reset"}


def test_whole_increases_give_seconds_of_pause():
    link_rates = rates(eth0={"rx_prio3_pause_duration": 2_500_000.0})
    assert flow(ROCE_PORT, link_rates, seconds=4.0).rx_pause == 2.5
    assert flow(ROCE_PORT, link_rates, seconds=2.0).rx_pause == 2.0, (
        "never more than all of the time"
    )
