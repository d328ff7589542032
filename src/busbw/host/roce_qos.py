"""Quality of service of RoCE: which priority packets get, what that priority has, and which files
set it when the machine starts.

The settings come from sysfs, configfs and DCB. The files qos/trust, ecn/ and tc/ are those of
NVIDIA's own driver (DOCA-OFED, MLNX_OFED); the kernel's driver has only DCB.

Files that set RoCE are units of systemd, rules of udev, files and scripts of the network, and cron.
Only their names and the words found in them are kept, as such files may hold secrets.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.host.dcb import PRIORITIES, Dcb, read_dcb
from busbw.host.interfaces import NET
from busbw.host.nic import RDMA
from busbw.host.source import Source

CONFIGFS = "/sys/kernel/config/rdma_cm"
_GLOBAL = re.compile(r"Global tclass=(\d+)")
ECN_BITS = {0: "no ECN", 1: "ECT(1)", 2: "ECT(0)", 3: "CE"}
CALL = "files that set RoCE at the start"
UNITS = ("etc/systemd/system", "usr/lib/systemd/system")
FILES = (
    "etc/udev/rules.d",
    "usr/lib/udev/rules.d",
    "etc/network/interfaces",
    "etc/network/interfaces.d",
    "etc/netplan",
    "etc/systemd/network",
    "etc/NetworkManager/system-connections",
    "etc/sysconfig/network-scripts",
    "etc/infiniband",
    "etc/crontab",
    "etc/cron.d",
    "var/lib/lldpad/lldpad.conf",
)
# The system runs these only if they are executable.
SCRIPTS = (
    "etc/NetworkManager/dispatcher.d",
    "etc/network/if-pre-up.d",
    "etc/network/if-up.d",
    "etc/networkd-dispatcher",
    "etc/rc.local",
    "etc/rc.d/rc.local",
    "sbin/ifup-local",
)
WORDS = re.compile(
    r"mlnx_qos|cma_roce_tos|cma_roce_mode|traffic_class|roce_np|roce_rp|\bdcb (?:-\S+"
    r" )*(?:pfc|app|apptrust|ets)\b"
    r"|dcbtool|lldptool|tlvid0080c20b|priority-flow-control|bnxt_setupcc|niccli|nicctl"
    r"|rdma_qos_init"
)
_COMMENT = re.compile(r"^\s*[#;].*$", re.MULTILINE)
_STARTS = re.compile(r"^Exec(?:Start|StartPre|StartPost)=[-@:+!]*(.*)$", re.MULTILINE)
# Paths of programs in a rule, a file of the network or cron.
_RUNS = re.compile(r"(?<![\w/.])/(?:usr|opt|etc|root|home|srv|sbin|bin)/[\w./@+-]+")
_WANTED = re.compile(r"(?:^(?:Wants|Requires)=|SYSTEMD_WANTS\}?\+?=\"?)([^\"\n]+)", re.MULTILINE)
_INSTANCE = re.compile(r"@[^.]+\.")
_STARTERS = (".timer", ".path", ".socket")  # units that start the service of their name
_READ_BYTES = 1 << 16  # of each file
_FILE_LIMIT = 4000  # files that are read


@dataclass(frozen=True, slots=True)
class Qos:
    """The settings of one interface.

    Where they cannot be read, `trust` is '', `dcb` the reason, and the others are None.
    """

    netdev: str
    trust: str  # dscp or pcp
    trust_where: str
    dcb: Dcb | str
    # Priorities on which it answers ECN marks with CNPs (notification point).
    notify: tuple[int, ...] | None
    react: tuple[int, ...] | None  # priorities on which it slows down for CNPs (reaction point)
    cnp: str | None  # DSCP of CNPs
    tagged: bool = False  # its packets have a VLAN tag with a priority

    @property
    def lossless(self) -> tuple[int, ...] | None:
        """Priorities with priority flow control."""
        return None if isinstance(self.dcb, str) else self.dcb.pfc

    def priority(self, traffic_class: int) -> int | None:
        """The priority of packets with this traffic class byte; None if it is not known.

        Untagged packets have 0 where PCP is trusted.
        """
        if self.trust == "pcp":
            return None if self.tagged else 0
        return None if isinstance(self.dcb, str) else self.dcb.dscp.get(traffic_class >> 2)


def read_qos(source: Source, netdev: str, *, tagged: bool = False) -> Qos:
    """The settings of a hardware interface, which is `tagged` if a VLAN lies over it."""
    dcb = read_dcb(source, netdev)
    where = f"{NET}/{netdev}/qos/trust"
    trust = source.read(where).text or ""
    if not trust and isinstance(dcb, Dcb):
        where = f"dcb {netdev}"
        trust = "dscp" if dcb.dscp else "pcp"
        if dcb.trust:
            trust = dcb.trust[0]
    ecn = f"{NET}/{netdev}/ecn"
    return Qos(
        netdev=netdev,
        trust=trust,
        trust_where=where,
        dcb=dcb,
        notify=_enabled(source, f"{ecn}/roce_np/enable"),
        react=_enabled(source, f"{ecn}/roce_rp/enable"),
        cnp=source.read(f"{ecn}/roce_np/cnp_dscp").text,
        tagged=tagged,
    )


def _enabled(source: Source, folder: str) -> tuple[int, ...] | None:
    """The priorities that the files of a folder enable; None if one cannot be read."""
    texts = [source.read(f"{folder}/{priority}").text for priority in range(PRIORITIES)]
    if None in texts:
        return None
    return tuple(priority for priority, text in enumerate(texts) if text == "1")


def traffic_class_path(device: str, port: str) -> str:
    """The file with the traffic class that the driver gives all RDMA packets of a port."""
    return f"{RDMA}/{device}/tc/{port}/traffic_class"


def parse_traffic_class(text: str) -> int | None:
    """The traffic class of all packets, 0 - 255; None if applications choose it themselves."""
    match = _GLOBAL.match(text)
    return int(match.group(1)) if match else None


def rdma_cm_path(device: str, port: str, name: str) -> str:
    """A file of RDMA-CM's defaults in configfs.

    It exists once somebody has created the directory of the device.
    """
    return f"{CONFIGFS}/{device}/ports/{port}/{name}"


def decoded(traffic_class: int) -> str:
    """A traffic class with its DSCP and ECN bits: `106 (DSCP 26, ECT(0))`."""
    return f"{traffic_class} (DSCP {traffic_class >> 2}, {ECN_BITS[traffic_class & 3]})"


class Setter(msgspec.Struct, frozen=True):
    """One file.

    `enabled` is False for a unit that systemd does not start, and for a script that is not
    executable.
    """

    path: str
    words: list[str]
    enabled: bool = True


def read_setters(source: Source) -> list[Setter] | str:
    """The files; a text says why they are unknown."""
    reading = source.call(CALL, lambda: msgspec.json.encode(list(setters(Path("/")))).decode())
    if reading.data is None:
        return reading.reason
    return msgspec.json.decode(reading.data, type=list[Setter])


def setters(root: Path) -> Iterator[Setter]:
    """Files under `root` that set RoCE.

    They, or scripts that they start, have one of WORDS outside of comments.
    """
    files = list(_files(root, (*UNITS, *FILES, *SCRIPTS)))[:_FILE_LIMIT]
    texts = {path: _text(path) for path in files}
    started = _started_units(root, texts.values())
    for path, text in texts.items():
        commands = _STARTS.findall(text) if path.suffix in (".service", ".conf") else [text]
        scripts = dict.fromkeys(script for command in commands for script in _RUNS.findall(command))
        script_texts = [_text(root / script.lstrip("/")) for script in scripts]
        words = sorted(set(WORDS.findall("".join([text, *script_texts]))))
        if words:
            name = str(path.relative_to(root))
            is_unit = name.startswith(tuple(f"{folder}/" for folder in UNITS))
            enabled = _is_started(path, started) if is_unit else _is_run(name, path)
            yield Setter(f"/{name}", words, enabled)


def _started_units(root: Path, texts: Iterable[str]) -> set[str]:
    """Names of the units that something starts, templates without their instance."""
    names = set()
    for folder in UNITS:
        for kind in ("wants", "requires"):
            names |= {link.name for link in (root / folder).glob(f"*.{kind}/*")}
    for text in texts:
        for line in _WANTED.findall(text):
            names |= set(line.split())
    return {_INSTANCE.sub("@.", name) for name in names}


def _is_started(path: Path, started: set[str]) -> bool:
    """Whether systemd starts the unit of a file, which may be a drop-in."""
    name = path.parent.name.removesuffix(".d") if path.suffix == ".conf" else path.name
    unit = _INSTANCE.sub("@.", name)
    stem = unit.removesuffix(".service")
    return unit in started or any(f"{stem}{kind}" in started for kind in _STARTERS)


def _is_run(name: str, path: Path) -> bool:
    """Whether the system runs or reads the file `path`, whose path below the root is `name`."""
    return os.access(path, os.X_OK) if name.startswith(SCRIPTS) else True


def _files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Files, not links: a unit that is enabled is linked from a second folder."""
    for folder in folders:
        place = root / folder
        paths = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def _text(path: Path) -> str:
    """A file without its comments; '' for a program, or a file that cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_READ_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in data else _COMMENT.sub("", data.decode("utf-8", "replace")) + "\n"
