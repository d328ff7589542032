"""The settings of RDMA-CM: its version of RoCE and its type of service."""

from collections.abc import Iterator

from busbw.check.base import check, judged, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import VARIABLE_SOURCES
from busbw.check.nic.links import fabric, no_fabric
from busbw.check.roce.settings import RoceInterface, absent, listed, sent_class, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.nic import V2
from busbw.host.roce_qos import CONFIGFS, decoded, rdma_cm_path

MODE_FILE = "default_roce_mode"
MAKE_DIRECTORY = f"modprobe rdma_cm; mkdir {CONFIGFS}/{{device}}; cat {{path}}"

CM_MODE = CheckRow(
    id="BW093",
    name="roce-cm-mode",
    layer=Layer.ROCE,
    title="RoCE version of RDMA-CM",
    right=V2,
    why=(
        "Programs that connect with RDMA-CM (storage, ib_write_bw -R) use it. RoCE v1 is not"
        " routed. NCCL itself does not use RDMA-CM."
    ),
    fix=(
        f"mkdir -p {CONFIGFS}/{{device}}; echo '{V2}' >"
        f" {CONFIGFS}/{{device}}/ports/{{port}}/{MODE_FILE}"
    ),
    stays="after reboot: lost; run it from a systemd unit after rdma_cm is loaded",
    reads=(f"{CONFIGFS}/*/ports/*/{MODE_FILE}",),
    sources=(
        "Linux Documentation/ABI/testing/configfs-rdma_cm",
        "Linux drivers/infiniband/core/cma.c",
    ),
)
TOS_FILE = "default_roce_tos"


@check(CM_MODE)
def check_cm_mode(machine: Machine) -> Iterator[Finding]:
    """A finding for each RoCE port with a directory in configfs.

    Creating one would change the machine.
    """
    ports = fabric(machine)
    if not ports:
        yield skipped(no_fabric(machine))
        return
    read = {port: machine.read(rdma_cm_path(port.device, port.number, MODE_FILE)) for port in ports}
    missing = [port for port, reading in read.items() if not reading.text]
    if missing:
        first = missing[0]
        fix = filled(
            MAKE_DIRECTORY,
            device=first.device,
            path=rdma_cm_path(first.device, first.number, MODE_FILE),
        )
        names = ", ".join(port.name for port in missing)
        message = (
            f"{CONFIGFS} has no directory for {names}; Linux uses {V2} by default if the NIC"
            " supports it"
        )
        yield unanswered("", message, read[first].reason or "it has no value", fix=fix)
    for port, reading in read.items():
        if reading.text:
            yield judged(
                right=reading.text == V2,
                subject=port.name,
                good=f"RDMA-CM uses {V2}",
                bad=f"RDMA-CM uses {reading.text}, which is not routed",
                evidence=(
                    Evidence(rdma_cm_path(port.device, port.number, MODE_FILE), reading.text, V2),
                ),
                fix=filled(CM_MODE.fix, device=port.device, port=port.number),
            )


CM_TOS = CheckRow(
    id="BW094",
    name="roce-cm-tos",
    layer=Layer.ROCE,
    title="type of service of RDMA-CM",
    right="its DSCP maps to a priority with flow control, or equals that of all other RDMA packets",
    why=(
        "Otherwise RDMA-CM connections (storage, ib_write_bw -R) use a different traffic class than"
        " NCCL, and lose packets."
    ),
    fix=(
        f"mkdir -p {CONFIGFS}/{{device}}; echo {{value}} >"
        f" {CONFIGFS}/{{device}}/ports/{{port}}/{TOS_FILE}"
    ),
    stays="after reboot: lost; run it from a systemd unit after rdma_cm is loaded",
    reads=(
        f"{CONFIGFS}/*/ports/*/{TOS_FILE}",
        "/sys/class/infiniband/*/tc/*/traffic_class",
        *VARIABLE_SOURCES,
        "dcb",
    ),
    sources=("Linux Documentation/ABI/testing/configfs-rdma_cm",),
)


@check(CM_TOS)
def check_cm_tos(machine: Machine) -> Iterator[Finding]:
    """A finding for each RoCE port with a directory in configfs.

    Creating one would change the machine.
    """
    by_port = {setting.port.name: setting for setting in settings(machine)}
    if not by_port:
        yield skipped(absent(machine))
        return
    missing = [
        setting.port
        for setting in by_port.values()
        if not machine.text(rdma_cm_path(setting.port.device, setting.port.number, TOS_FILE))
    ]
    if missing:
        names = ", ".join(port.name for port in missing)
        fix = filled(
            MAKE_DIRECTORY,
            device=missing[0].device,
            path=rdma_cm_path(missing[0].device, missing[0].number, TOS_FILE),
        )
        yield not_offered(
            "", f"{CONFIGFS} has no directory for {names}; Linux uses 0 by default", fix=fix
        )
    for setting in by_port.values():
        if setting.port not in missing:
            yield _judge_cm_tos(machine, setting)


def _judge_cm_tos(machine: Machine, setting: RoceInterface) -> Finding:
    port, qos = setting.port, setting.qos
    path = rdma_cm_path(port.device, port.number, TOS_FILE)
    text = machine.text(path) or ""
    if not text.isdecimal():
        return not_offered(
            port.name, f"the type of service is '{text}', not a number", Evidence(path, text)
        )
    value = int(text)
    other, where = sent_class(machine, port)
    priority, lossless = qos.priority(value), qos.lossless
    if other is not None and value >> 2 == other >> 2:
        return passed(
            port.name, f"{decoded(value)}, like all RDMA packets", Evidence(path, text, str(other))
        )
    if lossless and priority in lossless:
        return passed(
            port.name,
            f"{decoded(value)} has priority {priority}, which is lossless",
            Evidence(path, text),
        )
    if other is None or not lossless:
        return not_offered(
            port.name,
            f"{decoded(value)}; there is nothing here to compare it with",
            Evidence(path, text),
        )
    fix = filled(CM_TOS.fix, value=other, device=port.device, port=port.number)
    expected = f"{other}, from {where}, or one with priority {listed(lossless)}"
    return warned(
        port.name,
        f"{decoded(value)}, while other RDMA packets have {decoded(other)}",
        Evidence(path, text, expected),
        fix=fix,
    )
