"""Whether systemd removes shared memory when a user logs out."""

from collections.abc import Iterator

from busbw.check.base import Check, broken, judged, not_offered, skipped, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import logind_setting

CONF = "/etc/systemd/logind.conf"
DROP_INS = f"{CONF}.d"
OFF = ("no", "false", "0", "off")

ROW = CheckRow(
    id="BW114",
    name="kernel-removeipc",
    layer=Layer.KERNEL,
    title="removal of shared memory at logout",
    right="RemoveIPC=no in systemd's logind",
    why="mpirun and Slurm run jobs of users who are not logged in. With RemoveIPC=yes systemd deletes their files in /dev/shm, and NCCL "
    "crashes.",
    fix=f"mkdir -p {DROP_INS}; printf '[Login]\\nRemoveIPC=no\\n' > {DROP_INS}/ipc.conf; systemctl restart systemd-logind",
    stays="survives a reboot",
    reads=(CONF, f"{DROP_INS}/*.conf"),
    sources=("NCCL user guide, troubleshooting: shared memory", "systemd, logind.conf(5)"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The configured value, or else the default, which the installed file has in a comment."""
    if machine.container or not machine.names("/run/systemd"):
        yield skipped("a container has no logind" if machine.container else "systemd does not run here")
        return
    paths = [CONF, *(f"{DROP_INS}/{name}" for name in machine.names(DROP_INS) if name.endswith(".conf"))]
    value = logind_setting([text for path in paths if (text := machine.text(path))], "RemoveIPC")
    if broken(machine.read(CONF)):
        yield unread("", machine.read(CONF), "the configuration of logind")
        return
    if value is None:
        yield not_offered("", f"{CONF} has no RemoveIPC, and the default differs between distributions", fix=ROW.fix)
        return
    yield judged(
        right=value.lower() in OFF,
        subject="",
        good="systemd keeps shared memory",
        bad="systemd removes a user's shared memory at the last logout, even while jobs use it",
        evidence=(Evidence(", ".join(paths), f"RemoveIPC={value}", "RemoveIPC=no"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
