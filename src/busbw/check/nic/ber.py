"""The bit error rate before correction."""

from collections.abc import Iterator, Sequence

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import each_port
from busbw.check.rates import LOADED, Count, window
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

MOST = 1e-7
FEWEST_BITS = 10**10  # with fewer, one error means nothing
NAMES = "rx_corrected_bits_phy|rx_bits_phy"

ROW = CheckRow(
    id="BW078",
    name="nic-ber",
    layer=Layer.NIC,
    title="bit error rate before correction",
    right=f"at most {MOST:g} of the bits received, between two readings (--watch-for, --since) or since the driver was loaded",
    why="Forward error correction hides a bad optic until it no longer can. A rate above that of other ports precedes packet loss.",
    fix="drain the host; clean or replace the optic of {device}, then mlxlink -d {device} -m -c -e",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("ethtool -S: rx_corrected_bits_phy, rx_bits_phy",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst", "OCI oci-hpc, check_gpu_setup.py"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable; of a bond, the worst slave."""
    yield from each_port(machine, (), NAMES, lambda port, found: _judge(machine, port, found))


def _judge(machine: Machine, port: Port, found: list[Count]) -> Found:
    recent = window(machine, found)
    shares = _shares(recent.counts) or _shares(found)  # too few bits in a short time
    since = recent.since if _shares(recent.counts) else LOADED
    if not shares:
        return not_offered(port.name, "its driver does not count corrected bits, or too few bits were received")
    netdev, (fixed, bits) = max(shares.items(), key=lambda item: item[1][0] / item[1][1])
    worst = fixed / bits
    seen = Evidence(f"ethtool -S {netdev}: rx_corrected_bits_phy / rx_bits_phy", f"{fixed} / {bits} = {worst:.1e}", f"at most {MOST:g}")
    text = f"{worst:.1e} of the bits had errors that were corrected, {since}"
    if worst > MOST:
        return warned(port.name, text, seen, fix=filled(ROW.fix, device=port.device), weight=worst)
    return passed(port.name, text, seen)


def _shares(found: Sequence[Count]) -> dict[str, tuple[int, int]]:
    """Corrected bits and all bits by interface; empty if one has too few."""
    by_netdev: dict[str, dict[str, int]] = {}
    for count in found:
        by_netdev.setdefault(count.netdev, {})[count.name] = count.value
    pairs = {name: (both.get("rx_corrected_bits_phy"), both.get("rx_bits_phy", 0)) for name, both in by_netdev.items()}
    known = {name: (fixed, bits) for name, (fixed, bits) in pairs.items() if fixed is not None and bits >= FEWEST_BITS}
    return known if len(known) == len(pairs) else {}


CHECK = Check(ROW, look)
