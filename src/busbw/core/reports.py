"""The status lines that ranks write to stderr for the launcher: that they run, that they are stuck, that another process ended."""

import msgspec

PREFIX = "busbw-report: "


class Here(msgspec.Struct, frozen=True, tag="here"):
    """A rank has started, or is still alive, as process `pid` of `host` (its own host name)."""

    rank: int
    host: str
    pid: int


class Stalled(msgspec.Struct, frozen=True, tag="stalled"):
    """A rank has been in one step for longer than its limit.

    `step` counts steps and is the same on all ranks for the same one; `doing` holds the main thread's innermost calls, the innermost
    last; `neighbours` maps the pids of its launcher's other processes on this host to their states (/proc/PID/stat); `dark` lists
    interfaces that have lost their link since it started; `library` is the communication library's own status text.
    """

    rank: int
    host: str
    pid: int
    phase: str
    detail: str
    step: int
    waited_s: float
    doing: list[str] = []
    neighbours: dict[int, str] = {}
    dark: list[str] = []
    library: str = ""

    @property
    def phase_text(self) -> str:
        """`timing of 1M in place`, or the phase alone."""
        return f"{self.phase} of {self.detail}" if self.detail else self.phase

    def message(self) -> str:
        """The report for the user: which rank, in which step, for how long, and in which calls."""
        where = f"rank {self.rank} on {self.host}: {self.phase_text} (step {self.step})"
        stopped = [str(pid) for pid, state in self.neighbours.items() if state in ("T", "t")]
        text = f"{where} made no progress for {self.waited_s:.0f} s: {' > '.join(self.doing)}"
        if stopped:
            text += f"; stopped on the same host: process {', '.join(stopped)}"
        return f"{text}\n{self.library}" if self.library else text


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Rank `rank` on `host` saw another process of its launcher there end: the one with `pid`."""

    rank: int
    host: str
    pid: int


Report = Here | Stalled | Gone


def encode(report: Report) -> str:
    """One line without its newline."""
    return PREFIX + msgspec.json.encode(report).decode()


def decode(line: str) -> Report | None:
    """The report in a line of stderr, which may start with a prefix of the launcher; None if there is none."""
    _, found, text = line.partition(PREFIX)
    try:
        return _decoder.decode(text) if found else None
    except msgspec.DecodeError:
        return None


_decoder: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report, strict=False)
