"""InfiniBand SHARP, enabled where it is not available."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each, settings
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE, PLUGIN = "NCCL_COLLNET_ENABLE", "NCCL_NET_PLUGIN"

ROW = CheckRow(
    id="BW189",
    name="nccl-collnet",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set, or 1 on InfiniBand with a network plugin that offers SHARP",
    why="NCCL does in-network reductions only through a plugin. Without one the variable does nothing, and a measurement is mistaken for "
    "one of SHARP.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "/sys/class/infiniband/*/ports/*/link_layer"),
    sources=("NCCL user guide, NCCL_COLLNET_ENABLE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable against the fabric and the plugin."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    plugin = (settings(machine) or {}).get(PLUGIN)
    if plugin and plugin.value.lower() == "none":
        message = f"{setting.text}, but {plugin.text} disables the plugin that it needs"
        return warned("", message, setting.evidence(), plugin.evidence("a plugin with SHARP"), fix=plugin.unset)
    if machine.ports and all(port.roce for port in machine.ports):
        layers = Evidence("/sys/class/infiniband/*/ports/*/link_layer", "Ethernet", "InfiniBand")
        return warned(
            "", f"{setting.text}, but SHARP needs InfiniBand, and all ports are Ethernet", setting.evidence(), layers, fix=setting.unset
        )
    return passed("", f"{setting.text} uses SHARP if the plugin offers it", setting.evidence())


CHECK = Check(ROW, look)
