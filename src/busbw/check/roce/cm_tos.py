"""The type of service of RDMA-CM, compared with other RDMA connections."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS
from busbw.check.roce.settings import Setting, absent, listed, sent_class, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.roce_qos import CONFIGFS, decoded, rdma_cm_path

NAME = "default_roce_tos"

MAKE = f"modprobe rdma_cm; mkdir {CONFIGFS}/{{device}}; cat {{path}}"

ROW = CheckRow(
    id="BW094",
    name="roce-cm-tos",
    layer=Layer.ROCE,
    title="type of service of RDMA-CM",
    right="its DSCP maps to a priority with flow control, or equals that of all other RDMA packets",
    why="Otherwise RDMA-CM connections (storage, ib_write_bw -R) use a different traffic class than NCCL, and lose packets.",
    fix=f"mkdir -p {CONFIGFS}/{{device}}; echo {{value}} > {CONFIGFS}/{{device}}/ports/{{port}}/{NAME}",
    stays="lost at the next reboot: run it from a systemd unit after rdma_cm is loaded",
    reads=(
        f"{CONFIGFS}/*/ports/*/{NAME}",
        "/sys/class/infiniband/*/tc/*/traffic_class",
        *READS,
        "dcb",
    ),
    sources=("Linux Documentation/ABI/testing/configfs-rdma_cm",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port with a directory in configfs. Creating one would change the machine."""
    found = {setting.port.name: setting for setting in settings(machine)}
    if not found:
        yield skipped(absent(machine))
        return
    missing = [one.port for one in found.values() if not machine.text(rdma_cm_path(one.port.device, one.port.number, NAME))]
    if missing:
        names = ", ".join(port.name for port in missing)
        fix = filled(MAKE, device=missing[0].device, path=rdma_cm_path(missing[0].device, missing[0].number, NAME))
        yield not_offered("", f"{CONFIGFS} has no directory for {names}; Linux uses 0 by default", fix=fix)
    for setting in found.values():
        if setting.port not in missing:
            yield _judge(machine, setting)


def _judge(machine: Machine, setting: Setting) -> Found:
    port, qos = setting.port, setting.qos
    path = rdma_cm_path(port.device, port.number, NAME)
    text = machine.text(path) or ""
    if not text.isdecimal():
        return not_offered(port.name, f"the type of service is '{text}', not a number", Evidence(path, text))
    value = int(text)
    other, where = sent_class(machine, port)
    priority, lossless = qos.priority(value), qos.lossless
    if other is not None and value >> 2 == other >> 2:
        return passed(port.name, f"{decoded(value)}, like all RDMA packets", Evidence(path, text, str(other)))
    if lossless and priority in lossless:
        return passed(port.name, f"{decoded(value)} has priority {priority}, which is lossless", Evidence(path, text))
    if other is None or not lossless:
        return not_offered(port.name, f"{decoded(value)}; there is nothing here to compare it with", Evidence(path, text))
    fix = filled(ROW.fix, value=other, device=port.device, port=port.number)
    expected = f"{other}, from {where}, or one with priority {listed(lossless)}"
    return warned(port.name, f"{decoded(value)}, while other RDMA packets have {decoded(other)}", Evidence(path, text, expected), fix=fix)


CHECK = Check(ROW, look)
