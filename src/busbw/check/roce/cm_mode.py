"""The GID type that RDMA-CM uses."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped, unanswered
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gids import V2
from busbw.host.roce_qos import CONFIGFS, rdma_cm_path

NAME = "default_roce_mode"

MAKE = f"modprobe rdma_cm; mkdir {CONFIGFS}/{{device}}; cat {{path}}"

ROW = CheckRow(
    id="BW093",
    name="roce-cm-mode",
    layer=Layer.ROCE,
    title="RoCE version of RDMA-CM",
    right=V2,
    why="Programs that connect with RDMA-CM (storage, ib_write_bw -R) use it. RoCE v1 is not routed. NCCL itself does not use RDMA-CM.",
    fix=f"mkdir -p {CONFIGFS}/{{device}}; echo '{V2}' > {CONFIGFS}/{{device}}/ports/{{port}}/{NAME}",
    stays="lost at the next reboot: run it from a systemd unit after rdma_cm is loaded",
    reads=(f"{CONFIGFS}/*/ports/*/{NAME}",),
    sources=("Linux Documentation/ABI/testing/configfs-rdma_cm", "Linux drivers/infiniband/core/cma.c"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port with a directory in configfs. Creating one would change the machine."""
    ports = fabric(machine)
    if not ports:
        yield skipped(no_fabric(machine))
        return
    read = {port: machine.read(rdma_cm_path(port.device, port.number, NAME)) for port in ports}
    missing = [port for port, reading in read.items() if not reading.text]
    if missing:
        first = missing[0]
        fix = filled(MAKE, device=first.device, path=rdma_cm_path(first.device, first.number, NAME))
        names = ", ".join(port.name for port in missing)
        message = f"{CONFIGFS} has no directory for {names}; Linux uses {V2} by default if the NIC supports it"
        yield unanswered("", message, read[first].reason or "it has no value", fix=fix)
    for port, reading in read.items():
        if reading.text:
            yield judged(
                right=reading.text == V2,
                subject=port.name,
                good=f"RDMA-CM uses {V2}",
                bad=f"RDMA-CM uses {reading.text}, which is not routed",
                evidence=(Evidence(rdma_cm_path(port.device, port.number, NAME), reading.text, V2),),
                fix=filled(ROW.fix, device=port.device, port=port.number),
            )


CHECK = Check(ROW, look)
