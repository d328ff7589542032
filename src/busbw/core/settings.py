"""The table of settings: the keys of busbw.toml, and the variables of the same names.

A setting is the default of an option of the same meaning in some commands. The order of the rows is
that of `busbw check config` and of the reference page.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

LOG_VARIABLE = "BUSBW_LOG"
LOG_LEVELS = ("debug", "info")  # info logs only decisions, debug also what was read and tried
CONFIG_VARIABLE = "BUSBW_CONFIG"  # names a file in place of those that are looked for
FILE_NAME = "busbw.toml"
PREFIX = "BUSBW_"
OFF = ("false", "off", "no", "0")  # in a file or a variable, in any case: the first is printed


class Kind(Enum):
    """What a setting holds, as it is written in the file."""

    TEXT = "text"
    HOSTS = "text, or a list of texts"
    PATH = "a path, relative to the file's folder; ~ is the home directory"
    PATH_OR_FALSE = "a path as for hostfile, or false (also off, no, 0)"
    RATE = "a rate as text"
    SECONDS = 'a number of seconds, or a time as text, like "2m"'


class Setting(NamedTuple):
    """One setting. It is the default of the parameter `parameter` of the `commands`, where that
    parameter is the option `option`; of none if `commands` is empty.
    """

    key: str
    kind: Kind
    meaning: str
    example: str  # a value as TOML writes it
    parameter: str = ""
    option: str = ""
    commands: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()


_STARTS_RANKS = ("run", "backends", "overlap", "moe", "train", "plan", "tune", "replay")
_NAMES_HOSTS = (*_STARTS_RANKS, "link", "check", "check launch", "check job", "deploy")

SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="hosts",
        kind=Kind.HOSTS,
        meaning="hosts and ranks on each",
        example='["h1:8", "h2:8"]',
        parameter="hosts",
        option="--hosts",
        commands=_NAMES_HOSTS,
    ),
    Setting(
        key="hostfile",
        kind=Kind.PATH,
        meaning="file with one host per line, instead of hosts",
        example='"hosts.txt"',
        parameter="hostfile",
        option="--hostfile",
        commands=_NAMES_HOSTS,
    ),
    Setting(
        key="ifname",
        kind=Kind.TEXT,
        meaning=(
            "network interface or subnet for MPI, PMIx, Gloo and NCCL; busbw also sets the variable"
            " on all ranks, where each host resolves it"
        ),
        example='"10.1.0.0/16"',
        parameter="ifname",
        option="--ifname",
        commands=(*_STARTS_RANKS, "check launch"),
    ),
    Setting(
        key="engine",
        kind=Kind.TEXT,
        meaning=(
            "engine: auto, nccl, torch, mpi or sim; the compat commands take it from the variable"
        ),
        example='"nccl"',
        parameter="engine",
        option="--engine",
        commands=("run", "replay", "link", "check launch"),
    ),
    Setting(
        key="net",
        kind=Kind.TEXT,
        meaning="network that NCCL must use: busbw, socket or ib",
        example='"ib"',
        parameter="net",
        option="--net",
        commands=("run", "moe", "train", "tune", "replay"),
    ),
    Setting(
        key="ideal",
        kind=Kind.RATE,
        meaning="ideal busbw, instead of the one from the topology",
        example='"450GB/s"',
        parameter="ideal",
        option="--ideal",
        commands=("run",),
    ),
    Setting(
        key="system",
        kind=Kind.TEXT,
        meaning="GPU and how many a host has, for predictions",
        example='"h100x8"',
        parameter="system",
        option="--system",
        commands=("predict",),
    ),
    Setting(
        key="nics",
        kind=Kind.TEXT,
        meaning="ports of a host of that system and the rate of each",
        example='"8x400G"',
        parameter="nics",
        option="--nics",
        commands=("predict",),
    ),
    Setting(
        key="limit",
        kind=Kind.SECONDS,
        meaning="seconds without a completed operation until a run is stopped; 0 = no limit",
        example="120",
        parameter="limit_s",
        option="--limit",
        commands=("run", "moe", "tune", "replay"),
    ),
    Setting(
        key="launch_limit",
        kind=Kind.SECONDS,
        meaning="seconds until all ranks must have joined",
        example="300",
        parameter="launch_limit_s",
        option="--launch-limit",
        commands=(*_STARTS_RANKS, "link"),
    ),
    Setting(
        key="history",
        kind=Kind.PATH_OR_FALSE,
        meaning="the file in which `busbw run` keeps its results; false = keep none",
        example='"/shared/busbw/history.sqlite"',
    ),
    Setting(
        key="reference",
        kind=Kind.PATH_OR_FALSE,
        meaning=(
            "the file of `busbw reference add`, whose runs others are compared with; false ="
            " published runs alone"
        ),
        example='"/shared/busbw/reference.json"',
    ),
)
BY_KEY: dict[str, Setting] = {row.key: row for row in SETTINGS}
# What a setting of a closer place, or an option, puts out of use: it describes the same thing.
REPLACES: dict[str, tuple[str, ...]] = {
    "hosts": ("hostfile",),
    "hostfile": ("hosts",),
    "system": ("nics",),
}


PRINTS_ALL = "check config"  # the command that reads settings, and has them in none of its options


def settings_of(command: str) -> tuple[Setting, ...]:
    """The settings that are defaults of a command's options: `run`, `check launch`."""
    return tuple(row for row in SETTINGS if command in row.commands)


def places(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where files are looked for without --config, the closest first: the working directory, and
    busbw/ under XDG_CONFIG_HOME, or under ~/.config if that is no absolute path.
    """
    config_home = Path(environment.get("XDG_CONFIG_HOME", ""))
    if config_home.is_absolute():
        return Path(FILE_NAME), config_home / "busbw" / FILE_NAME
    home = environment.get("HOME", "")
    own = (Path(home) / ".config" / "busbw" / FILE_NAME,) if home else ()
    return Path(FILE_NAME), *own
