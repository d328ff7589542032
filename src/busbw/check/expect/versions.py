"""Driver, kernel and operating system against [versions]."""

from collections.abc import Iterator

from busbw.check.base import skipped
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, Expectation
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

KERNEL = "/proc/sys/kernel/osrelease"
DRIVER = "nvmlSystemGetDriverVersion"

ROW = CheckRow(
    id="BW291",
    name="expect-versions",
    layer=Layer.EXPECTED,
    title="NVIDIA driver, kernel and operating system, as an expectations file has them",
    right="not older than driver_min, kernel_min and os_min of [versions], not newer than driver_max, kernel_max and os_max, and the ID "
    "of /etc/os-release is os. A newest version may be a prefix: 570 allows every 570.x",
    why="A node that missed an update, or got one by itself, fails jobs that run on the others, or runs them slower.",
    fix="install the versions that the other nodes have, hold the packages back, and reboot",
    stays="yes, until the next update",
    reads=("NVML", KERNEL, seen.OS_RELEASE),
    sources=("the file given with --expect", "os-release(5)"),
)


def look(asked: Asked) -> Iterator[Found]:
    """One finding for the host."""
    machine, expected = asked.machine, asked.node.versions
    compared = Comparison(asked, "", ROW.fix)
    if expected.driver_min or expected.driver_max:
        _between(compared, "the NVIDIA driver", seen.driver(machine), ("driver_min", "driver_max"), DRIVER)
    if expected.kernel_min or expected.kernel_max:
        _between(compared, "the kernel", machine.text(KERNEL), ("kernel_min", "kernel_max"), KERNEL)
    system = seen.os_release(machine) if expected.os or expected.os_min or expected.os_max else {}
    compared.same("operating system", system.get("ID"), expected.os, ("versions", "os"), f"{seen.OS_RELEASE}: ID")
    if expected.os_min or expected.os_max:
        _between(
            compared, "the operating system's version", system.get("VERSION_ID"), ("os_min", "os_max"), f"{seen.OS_RELEASE}: VERSION_ID"
        )
    yield from compared.found() or [skipped("the file expects no versions")]


def _between(compared: Comparison, what: str, text: str | None, keys: tuple[str, str], where: str) -> None:
    """`text` must be a version from the first key's to the second's."""
    least, most = (getattr(compared.asked.node.versions, key) for key in keys)
    own = seen.version(text or "")
    if not text or not own:
        compared.missing(what, f"{where} {'is ' + repr(text) if text else 'does not show it'}")
        return
    if least and own < seen.version(least):
        key, message, bound = keys[0], f"older than {least}", f"{least} or newer"
    elif most and _above(own, seen.version(most)):
        key, message, bound = keys[1], f"newer than {most}", f"{most} or older"
    else:
        compared.good.append(f"{what.removeprefix('the ')} {text}")
        return
    compared.wrong.append(f"{what} is {text}, {message}")
    compared.note(Evidence(where, text, compared.asked.expected(bound, "versions", key)), right=False)


def _above(own: tuple[int, ...], most: tuple[int, ...]) -> bool:
    return own[: len(most)] > most


CHECK = Expectation(ROW, look)
