"""The PCIe links of GPUs and RDMA devices against [gpus] and [[ports]]."""

from collections.abc import Iterator

from busbw.check.base import skipped
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, expectation
from busbw.check.expect.network import port_groups
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import at

PCIE = CheckRow(
    id="BW297",
    name="expect-pcie",
    layer=Layer.EXPECTED,
    title="PCIe speed and width of GPUs and RDMA devices, as an expectations file has them",
    right=(
        "at least pcie_gt_s and pcie_width of [gpus] and [[ports]]. An idle GPU lowers its "
        "speed: then it is the highest that both ends of the link support"
    ),
    why=(
        "A BIOS that limits all slots to an older generation halves all links, and no comparison of"
        " the slots shows it."
    ),
    fix="set the link speed of {bdf}'s slot to Auto in the BIOS; reseat the card and its riser",
    stays="permanent: hardware or a BIOS setting",
    reads=("/sys/bus/pci/devices/*/{current,max}_link_{speed,width}", "NVML"),
    sources=("the file given with --expect",),
)


@expectation(PCIE)
def expect_pcie(asked: Asked) -> Iterator[Found]:
    """Each GPU that NVML can read, then the device of each port that the file has."""
    expected = asked.node.gpus
    judged = expected.pcie_gt_s is not None or expected.pcie_width is not None
    gpus = [gpu for gpu in seen.gpus(asked.machine) if not gpu.error] if judged else []
    yield from (
        found
        for gpu in gpus
        for found in _compare_link(
            asked, gpu.label, gpu.address, gpu.pcie_gt_s, gpu.pcie_width, ("gpus",)
        )
    )
    done: set[str] = set()
    for filled in port_groups(asked):
        group = asked.node.ports[filled.number]
        if group.pcie_gt_s is None and group.pcie_width is None:
            continue
        judged = True
        for port in filled.parts:
            if port.device not in done:
                done.add(port.device)
                link = seen.port_link(asked.machine, port)
                yield from _compare_link(
                    asked, port.device, port.bdf, link.speed, link.width, ("ports", filled.number)
                )
    if not judged:
        yield skipped("the file expects nothing of PCIe links")


def _compare_link(
    asked: Asked,
    name: str,
    bdf: str,
    speed: float | None,
    width: int | None,
    table: tuple[str | int, ...],
) -> list[Found]:
    expected = asked.node.gpus if table == ("gpus",) else asked.node.ports[int(table[1])]
    compared = Comparison(asked, name, PCIE.fix.format(bdf=bdf or name))
    # Of an idle GPU, what it could be.
    which = "{current,max}_link_speed" if table == ("gpus",) else "current_link_speed"
    compared.least(
        "PCIe speed",
        speed,
        expected.pcie_gt_s,
        (*table, "pcie_gt_s"),
        f"{at(bdf)}/{which}",
        unit=_gt_s,
    )
    compared.least(
        "PCIe width",
        width,
        expected.pcie_width,
        (*table, "pcie_width"),
        f"{at(bdf)}/current_link_width",
        unit=_lanes,
    )
    return compared.found()


def _gt_s(speed: float) -> str:
    return f"{speed:g} GT/s"


def _lanes(width: float) -> str:
    return f"x{width:g}"
