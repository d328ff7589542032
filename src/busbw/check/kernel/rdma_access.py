"""Access to the RDMA device files."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.os_queries import accessible

FILES = "/dev/infiniband"

ROW = CheckRow(
    id="BW113",
    name="rdma-access",
    layer=Layer.KERNEL,
    title="access to the RDMA device files",
    right=f"this process may read and write each {FILES}/uverbs*",
    why="Without access NCCL finds no RDMA device and uses TCP.",
    fix="chmod 0666 {files}",
    stays="lost at the next reboot; rdma-core's udev rules keep it. For a container add --device=/dev/infiniband at its start",
    reads=(f"access to {FILES}",),
    sources=("rdma-core, udev rules", "Docker, docker run --device"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each file of a device."""
    if not machine.ports:
        yield skipped("no RDMA device")
        return
    reading = machine.call(f"access {FILES}", lambda: accessible(FILES))
    if reading.text is None:
        yield unread("", reading, FILES)
        return
    files = {name: allowed for name, allowed in json.loads(reading.text).items() if name.startswith("uverbs")}
    closed = [f"{FILES}/{name}" for name, allowed in files.items() if not allowed]
    if not files:
        fix = f"modprobe ib_uverbs; in a container add --device={FILES}"
        report = failed if any(port.active for port in machine.ports) else warned
        yield report("", f"RDMA devices have no file in {FILES}", Evidence(FILES, "no uverbs*", "uverbs*"), fix=fix)
    elif closed:
        evidence = (Evidence(path, "no access", "read and write") for path in closed)
        yield failed("", f"this process may not use {', '.join(closed)}", *evidence, fix=filled(ROW.fix, files=closed))
    else:
        yield passed("", f"this process may use {counted(len(files), 'RDMA device')}", Evidence(FILES, ", ".join(files)))


CHECK = Check(ROW, look)
