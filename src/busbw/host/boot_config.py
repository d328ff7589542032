"""Files of this machine that set RoCE when it starts: units of systemd, rules of udev, files and
scripts of the network, cron.

Only their names and the words found are kept, as such files may hold secrets.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from busbw.host.source import Source

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
# paths in a rule, a file of the network or cron
_RUNS = re.compile(r"(?<![\w/.])/(?:usr|opt|etc|root|home|srv|sbin|bin)/[\w./@+-]+")
_WANTED = re.compile(r"(?:^(?:Wants|Requires)=|SYSTEMD_WANTS\}?\+?=\"?)([^\"\n]+)", re.MULTILINE)
_INSTANCE = re.compile(r"@[^.]+\.")
_STARTERS = (".timer", ".path", ".socket")  # such a unit starts the service of its name
_LARGEST = 1 << 16
_MOST = 4000  # files that are looked at


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
    return (
        reading.reason
        if reading.data is None
        else msgspec.json.decode(reading.data, type=list[Setter])
    )


def setters(root: Path) -> Iterator[Setter]:
    """Files under `root` with one of the words outside of comments, and those that start such a
    script.
    """
    files = list(_files(root, (*UNITS, *FILES, *SCRIPTS)))[:_MOST]
    texts = {path: _text(path) for path in files}
    wanted = _wanted(root, texts.values())
    for path, text in texts.items():
        commands = _STARTS.findall(text) if path.suffix in (".service", ".conf") else [text]
        scripts = dict.fromkeys(script for command in commands for script in _RUNS.findall(command))
        found = sorted(
            set(
                WORDS.findall(
                    "".join((text, *(_text(root / script.lstrip("/")) for script in scripts)))
                )
            )
        )
        if found:
            name = f"/{path.relative_to(root)}"
            yield Setter(
                name,
                found,
                (
                    _starts(path, wanted)
                    if name.startswith(tuple(f"/{unit}/" for unit in UNITS))
                    else _runs(root, path)
                ),
            )


def _wanted(root: Path, texts: Iterable[str]) -> set[str]:
    """Names of the units that something starts, templates without their instance."""
    links = {
        link.name
        for folder in UNITS
        for kind in ("wants", "requires")
        for link in (root / folder).glob(f"*.{kind}/*")
    }
    named = {name for text in texts for names in _WANTED.findall(text) for name in names.split()}
    return {_INSTANCE.sub("@.", name) for name in links | named}


def _starts(path: Path, wanted: set[str]) -> bool:
    """Whether systemd starts a unit, or that of a drop-in."""
    name = path.parent.name.removesuffix(".d") if path.suffix == ".conf" else path.name
    unit = _INSTANCE.sub("@.", name)
    return unit in wanted or any(
        f"{unit.removesuffix('.service')}{kind}" in wanted for kind in _STARTERS
    )


def _runs(root: Path, path: Path) -> bool:
    """Whether the system runs or reads a file."""
    relative = str(path.relative_to(root))
    return os.access(path, os.X_OK) if relative.startswith(SCRIPTS) else True


def _files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Files, not links: a unit that is enabled is linked from a second folder."""
    for place in (root / folder for folder in folders):
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and not path.is_symlink())


def _text(path: Path) -> str:
    """A file without its comments; '' for a program, or what cannot be read."""
    try:
        with path.open("rb") as opened:
            data = opened.read(_LARGEST)
    except OSError:
        return ""
    return "" if b"\0" in data else _COMMENT.sub("", data.decode("utf-8", "replace")) + "\n"
