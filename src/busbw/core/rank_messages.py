"""The messages of ranks on stderr, one line each: they have started, work, stand still or leave."""

import msgspec

PREFIX = "busbw-report: "
# These phases share one deadline, --launch-limit after the rank's start.
STARTING = frozenset({"rendezvous", "init", "prepare"})


class Here(msgspec.Struct, frozen=True, tag="here"):
    """A rank has started, or is still alive. `host` is the host's own name, `pid` is on that host.

    `oom_kills` is how often the kernel of the host had killed a process for lack of memory before
    the rank started (-1: unknown). `folder` is the launcher's directory for the job on the host.
    """

    rank: int
    host: str
    pid: int
    oom_kills: int = -1
    folder: str = ""


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """A rank has measured everything, and leaves the job."""

    rank: int


class StalledConnection(msgspec.Struct, frozen=True):
    """A TCP connection of a rank that waits for lost packets."""

    local: str  # address
    peer: str  # address
    interface: str  # the local one
    timeouts: int  # in a row, without an answer
    resent: int  # of the last `sent` segments
    sent: int
    # size of segments without an answer, where small packets are answered; else 0
    vanishing: int = 0


class Stalled(msgspec.Struct, frozen=True, tag="stalled"):
    """A rank has been in one phase for longer than its limit."""

    rank: int
    host: str
    pid: int
    phase: str
    detail: str
    step: int  # numbers the phases, equally on all ranks
    waited_s: float
    doing: list[str] = []  # the innermost calls of the main thread, the innermost last
    # states (/proc/PID/stat) of the other ranks on this host, by pid
    local_processes: dict[int, str] = {}
    links_down: list[str] = []  # interfaces that had a link when the rank started and have none now
    library: str = ""  # report of the communication library
    connections: list[StalledConnection] = []  # those that lose packets

    @property
    def is_starting(self) -> bool:
        return self.phase in STARTING

    @property
    def phase_text(self) -> str:
        """`timing of 1M in place`, or the phase if it has no detail."""
        return f"{self.phase} of {self.detail}" if self.detail else self.phase

    def message(self) -> str:
        """The message for people: which rank, in which phase, for how long, and its calls."""
        text = (
            f"rank {self.rank} on {self.host}: {self.phase_text} (step {self.step})"
            f" made no progress for {self.waited_s:.0f} s: {' > '.join(self.doing)}"
        )
        stopped = [str(pid) for pid, state in self.local_processes.items() if state in ("T", "t")]
        if stopped:
            text += f"; local process {', '.join(stopped)} is stopped"
        if self.library:
            text += f"\n{self.library}"
        return text


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """A rank saw another process of its launcher on its host end: the one with `pid`."""

    rank: int
    host: str
    pid: int


class Working(msgspec.Struct, frozen=True, tag="working"):
    """The phase of rank 0, and the estimated seconds until the sweep ends, None if unknown."""

    phase: str
    detail: str
    left_s: float | None = None


class Throttled(msgspec.Struct, frozen=True, tag="throttled"):
    """A CPU quota of `cpus`, set in the file `path`, stops the rank most of the time."""

    rank: int
    host: str
    cpus: float
    path: str


Report = Here | Leaving | Stalled | Gone | Working | Throttled


def encode(report: Report) -> str:
    """One line without its newline."""
    return PREFIX + msgspec.json.encode(report).decode()


def decode(line: str) -> Report | None:
    """The report in a line of stderr, also after text of the launcher; None if there is none."""
    _, prefix, document = line.partition(PREFIX)
    if not prefix:
        return None
    try:
        return _decoder.decode(document)
    except msgspec.DecodeError:
        return None


_decoder: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report, strict=False)
