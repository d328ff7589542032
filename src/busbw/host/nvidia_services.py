"""The state of the NVIDIA driver's services: what they, the fabric manager and IMEX report of
themselves.
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


def _run(*words: str) -> str:
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
        lines = (done.stderr or done.stdout).strip().splitlines()
        last_line = f": {lines[-1]}" if lines else ""
        raise Unavailable(f"{words[0]} ended with exit code {done.returncode}{last_line}")
    return done.stdout


def services() -> str:
    """The output of `systemctl show` for the fabric manager and IMEX, as `states` takes it.

    Unavailable without systemd, as in most containers.
    """
    return _run("systemctl", "show", "--property=Id,LoadState,ActiveState", FABRIC_MANAGER, IMEX)


def states(text: str) -> dict[str, str]:
    """The state of each service: `active`, `inactive`, `failed`, ...

    It is `not installed` if systemd has no such unit.
    """
    states_by_unit = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Id"):
            missing = values.get("LoadState") == "not-found"
            states_by_unit[values["Id"]] = ABSENT if missing else values.get("ActiveState", "")
    return states_by_unit


def fabric_manager() -> str:
    """The output of `nv-fabricmanager --version`, as `version` takes it."""
    return _run("nv-fabricmanager", "--version")


def version(text: str) -> str:
    """`570.158.01` from the line `Fabric Manager version is : 570.158.01`; '' if there is none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def imex() -> str:
    """The output of `nvidia-imex-ctl -N`, as `imex_nodes` and `imex_domain` take it."""
    return _run("nvidia-imex-ctl", "-N")


def imex_nodes(text: str) -> dict[str, str]:
    """The state of each node by address; a good node is READY."""
    return dict(_IMEX_NODE.findall(text))


def imex_domain(text: str) -> str:
    """The state of the domain, UP if it is good; '' if the text names none."""
    match = _IMEX_DOMAIN.search(text)
    return match[1] if match else ""
