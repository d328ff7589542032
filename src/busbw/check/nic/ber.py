"""The bit error rate before correction."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, unknown, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import Count, each_port
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled

MOST = 1e-7
FEWEST_BITS = 10**10  # with fewer, one error means nothing
NAMES = "rx_corrected_bits_phy|rx_bits_phy"

ROW = CheckRow(
    id="BW078",
    name="nic-ber",
    layer=Layer.NIC,
    title="bit error rate before correction",
    right=f"at most {MOST:g} of the bits received",
    why="Forward error correction hides a bad optic until it no longer can. A rate above that of other ports precedes packet loss.",
    fix="drain the host; clean or replace the optic of {device}, then mlxlink -d {device} -m -c -e",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("ethtool -S: rx_corrected_bits_phy, rx_bits_phy",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst", "OCI oci-hpc, check_gpu_setup.py"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable; of a bond, the worst slave."""
    yield from each_port(machine, (), NAMES, _judge)


def _judge(port: Port, found: list[Count]) -> Found:
    by_netdev: dict[str, dict[str, int]] = {}
    for count in found:
        by_netdev.setdefault(count.netdev, {})[count.name] = count.value
    pairs = {name: (both.get("rx_corrected_bits_phy"), both.get("rx_bits_phy", 0)) for name, both in by_netdev.items()}
    rates = {name: fixed / bits for name, (fixed, bits) in pairs.items() if fixed is not None and bits >= FEWEST_BITS}
    if len(rates) < len(pairs):
        return unknown(port.name, "its driver does not count corrected bits, or too few bits were received")
    netdev, worst = max(rates.items(), key=lambda item: item[1])
    fixed, bits = pairs[netdev]
    seen = Evidence(f"ethtool -S {netdev}: rx_corrected_bits_phy / rx_bits_phy", f"{fixed} / {bits} = {worst:.1e}", f"at most {MOST:g}")
    if worst > MOST:
        return warned(port.name, f"{worst:.1e} of the bits had errors that were corrected", seen, fix=filled(ROW.fix, device=port.device))
    return passed(port.name, f"{worst:.1e} of the bits had errors that were corrected", seen)


CHECK = Check(ROW, look)
