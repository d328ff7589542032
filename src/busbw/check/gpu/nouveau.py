"""The nouveau driver, which can bind GPUs before NVIDIA's driver does."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unread, warned
from busbw.check.gpu.each import compute
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_devices import gpus_on_pci

PATH = "/proc/modules"

ROW = CheckRow(
    id="BW003",
    name="gpu-nouveau",
    layer=Layer.GPU,
    title="kernel module nouveau",
    right="not loaded",
    why="nouveau is the kernel's own driver for NVIDIA GPUs. If it binds a GPU first, NVIDIA's driver cannot, and CUDA finds no GPU.",
    fix="printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/blacklist-nouveau.conf; rebuild the initramfs "
    "(update-initramfs -u or dracut --force); drain the host and reboot it",
    stays="yes, once the initramfs is rebuilt: update-initramfs -u (Debian, Ubuntu) or dracut --force (RHEL)",
    reads=(PATH, "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=("CUDA installation guide for Linux, disabling nouveau",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Loaded modules."""
    if not gpus_on_pci(machine):
        yield skipped("no NVIDIA GPU on PCI")
        return
    reading = machine.read(PATH)
    loaded = {line.split(" ", 1)[0] for line in (reading.text or "").splitlines()}
    evidence = Evidence(PATH, "nouveau" if "nouveau" in loaded else "no nouveau", "no nouveau")
    if not loaded:
        yield unread("", reading, "the list of loaded modules")
    elif "nouveau" not in loaded:
        yield passed("", "nouveau is not loaded", evidence)
    elif "nvidia" in loaded:
        yield warned("", "nouveau is loaded along with NVIDIA's driver: at the next boot it may bind the GPUs first", evidence, fix=ROW.fix)
    elif not compute(machine):
        yield warned("", "nouveau is loaded, perhaps for a screen: CUDA finds no GPU", evidence, fix=ROW.fix)
    else:
        yield failed("", "nouveau is loaded, and NVIDIA's driver is not: CUDA finds no GPU", evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
