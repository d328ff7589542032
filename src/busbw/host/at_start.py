"""Files of this machine that set RoCE when it starts: units of systemd, rules of udev, scripts of the network.

Only their names and the words found are kept, as such files may hold secrets.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from busbw.host.source import Source

CALL = "files that set RoCE at the start"
UNITS = ("etc/systemd/system", "usr/lib/systemd/system")
SCRIPTS = ("etc/udev/rules.d", "usr/lib/udev/rules.d", "etc/NetworkManager/dispatcher.d", "etc/network/if-up.d", "etc/networkd-dispatcher",
           "etc/infiniband", "etc/rc.local", "etc/rc.d/rc.local")  # fmt: skip
WORDS = re.compile(r"mlnx_qos|cma_roce_tos|cma_roce_mode|traffic_class|roce_np|roce_rp|dcb pfc|dcb app|bnxt_setupcc|niccli")
_STARTS = re.compile(r"^Exec(?:Start|StartPre|StartPost)=[-@:+!]*(.*)$", re.MULTILINE)
_LARGEST = 1 << 16
_MOST = 4000  # files that are looked at


class Setter(msgspec.Struct, frozen=True):
    """One file. `enabled` is False for a unit that systemd does not start."""

    path: str
    words: list[str]
    enabled: bool = True


def read_setters(source: Source) -> list[Setter] | str:
    """The files; a text says why they are unknown."""
    reading = source.call(CALL, lambda: msgspec.json.encode(list(setters(Path("/")))).decode())
    return reading.reason if reading.data is None else msgspec.json.decode(reading.data, type=list[Setter])


def setters(root: Path) -> Iterator[Setter]:
    """Files under `root` with one of the words, and units that start such a script."""
    wanted = {link.name for folder in UNITS for kind in ("wants", "requires") for link in (root / folder).glob(f"*.{kind}/*")}
    for path in list(_files(root, (*UNITS, *SCRIPTS)))[:_MOST]:
        text = _text(path)
        for command in _STARTS.findall(text):
            text += "".join(_text(root / word.lstrip("/")) for word in command.split() if word.startswith("/"))
        words = sorted(set(WORDS.findall(text)))
        if words:
            unit = path.suffix in (".service", ".timer")
            yield Setter(f"/{path.relative_to(root)}", words, path.name in wanted if unit else True)


def _files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Files, not links: a unit that is enabled is linked from a second folder."""
    for place in (root / folder for folder in folders):
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and not path.is_symlink())


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(_LARGEST).decode("utf-8", "replace") + "\n"
    except OSError:
        return ""
