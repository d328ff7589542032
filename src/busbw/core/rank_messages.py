"""What ranks say of themselves on stderr, one line each: that they are there, and that they
stand still.
"""

import msgspec

PREFIX = "busbw-report: "


class Here(msgspec.Struct, frozen=True, tag="here"):
    """A rank has started, or is still alive: `host` as it calls itself, `pid` there.

    `oom_kills` is how often the kernel of that host had killed a process because memory ran out,
    before the rank started (-1: unknown). `folder` is the directory that the launcher made for the
    job on that host.
    """

    rank: int
    host: str
    pid: int
    oom_kills: int = -1
    folder: str = ""


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """A rank has measured everything, and leaves the job."""

    rank: int


class Connection(msgspec.Struct, frozen=True):
    """A TCP connection of a rank that waits for lost packets: addresses of both ends, and the
    interface of the near one.

    `timeouts` in a row have passed without an answer. `resent` of the last `sent` segments were
    sent again.
    """

    local: str
    peer: str
    interface: str
    timeouts: int
    resent: int
    sent: int


class Stalled(msgspec.Struct, frozen=True, tag="stalled"):
    """A rank has been in one phase for longer than its limit.

    `step` counts phases and is equal on all ranks in the same one. `doing` are the innermost calls
    of the main thread, the innermost last. `local_processes` are the states (/proc/PID/stat) of the
    other ranks on this host, by pid. `links_down` are interfaces that had a link when the rank
    started and have none now, `connections` those that lose packets. `library` is the report of the
    communication library.
    """

    rank: int
    host: str
    pid: int
    phase: str
    detail: str
    step: int
    waited_s: float
    doing: list[str] = []
    local_processes: dict[int, str] = {}
    links_down: list[str] = []
    library: str = ""
    connections: list[Connection] = []

    @property
    def phase_text(self) -> str:
        """`timing of 1M in place`, or the phase alone."""
        return f"{self.phase} of {self.detail}" if self.detail else self.phase

    def message(self) -> str:
        """For people: who, where, for how long, and what it is doing."""
        doing = " > ".join(self.doing)
        stopped = [str(pid) for pid, state in self.local_processes.items() if state in ("T", "t")]
        says = f"; local process {', '.join(stopped)} is stopped" if stopped else ""
        says += f"\n{self.library}" if self.library else ""
        where = f"rank {self.rank} on {self.host}: {self.phase_text} (step {self.step})"
        return f"{where} made no progress for {self.waited_s:.0f} s: {doing}{says}"


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Rank `rank` on `host` saw another process of its launcher there end: the one with `pid`."""

    rank: int
    host: str
    pid: int


class Working(msgspec.Struct, frozen=True, tag="working"):
    """What rank 0 is doing: its phase and detail, and the estimated seconds until the sweep
    ends, None where unknown.
    """

    phase: str
    detail: str
    left_s: float | None = None


Report = Here | Leaving | Stalled | Gone | Working


def encode(report: Report) -> str:
    """One line without its newline."""
    return PREFIX + msgspec.json.encode(report).decode()


def decode(line: str) -> Report | None:
    """The report in a line of stderr, also behind the launcher's own words; None where there is
    none.
    """
    at = line.find(PREFIX)
    if at < 0:
        return None
    try:
        return _decoder.decode(line[at + len(PREFIX) :])
    except msgspec.DecodeError:
        return None


_decoder: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report, strict=False)
