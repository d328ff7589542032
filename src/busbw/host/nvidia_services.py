"""What the NVIDIA driver's companions say of themselves: their services, and the versions and
states that their commands print.
"""

import re
import subprocess

from busbw.host.source import Unavailable

FABRIC_MANAGER, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
ABSENT = "not installed"
_LIMIT_S = 10
_IMEX_NODE = re.compile(r"^Node #\d+\s+- (\S+)\s+- ([A-Z_ ]+?)\s*(?:-.*)?$", re.MULTILINE)
_IMEX_DOMAIN = re.compile(r"^Domain State: (\w+)", re.MULTILINE)
_VERSION = re.compile(r"version is\s*:\s*([0-9][0-9.]*)", re.IGNORECASE)


def _output(*words: str) -> str:
    """What a command prints; Unavailable if it is not installed, fails or does not end in time."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{words[0]} is not installed") from error
    except OSError as error:
        raise Unavailable(f"{words[0]}: {(error.strerror or str(error)).lower()}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} gave no answer within {_LIMIT_S} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(
            f"{words[0]} ended with exit code {done.returncode}{f': {last[-1]}' if last else ''}"
        )
    return done.stdout


def services() -> str:
    """`systemctl show` of the fabric manager and of IMEX, for `states`; Unavailable as in a
    container without systemd.
    """
    return _output("systemctl", "show", "--property=Id,LoadState,ActiveState", FABRIC_MANAGER, IMEX)


def states(text: str) -> dict[str, str]:
    """The state of each service: `active`, `inactive`, `failed`, ...; `not installed` where
    systemd has no such unit.
    """
    found = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Id"):
            missing = values.get("LoadState") == "not-found"
            found[values["Id"]] = ABSENT if missing else values.get("ActiveState", "")
    return found


def fabric_manager() -> str:
    """`nv-fabricmanager --version`, for `version`."""
    return _output("nv-fabricmanager", "--version")


def version(text: str) -> str:
    """`570.158.01` from the line `Fabric Manager version is : 570.158.01`; '' if there is none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def imex() -> str:
    """`nvidia-imex-ctl -N`, the state of the whole domain, for `imex_nodes` and `imex_domain`."""
    return _output("nvidia-imex-ctl", "-N")


def imex_nodes(text: str) -> dict[str, str]:
    """The state of each node by address; READY is right."""
    return dict(_IMEX_NODE.findall(text))


def imex_domain(text: str) -> str:
    """The state of the domain: UP is right; '' if the text names none."""
    match = _IMEX_DOMAIN.search(text)
    return match[1] if match else ""
