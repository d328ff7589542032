"""The file `.rank_N.now` of a rank (pattern/recorder/busbw_rank_now.py)."""

import msgspec

from busbw.job.live.rank_use import STEPS, TIMED

VERSION = 1
Identity = tuple[str, int, int]  # host, pid and start of a process
_EMPTY = msgspec.Raw(b"[]")


class RankNow(msgspec.Struct, kw_only=True):
    """`.rank_N.now` (pattern/recorder/busbw_rank_now.py). Of long lists the last items are decoded,
    and of others only what changed.
    """

    version: int
    rank: int
    world: int
    host: str
    pid: int
    started: int
    pid_namespace: str
    launch: str
    ended: bool
    written_ns: int
    spent_us: dict[str, float] = {}
    doing_s: dict[str, float] = {}
    timed: int = 0
    computed_us: dict[str, float] = {}
    first_step: int = 0
    step_end_ns: int = 0
    steps_us: msgspec.Raw = _EMPTY
    waits_us: msgspec.Raw = _EMPTY
    pg_config: msgspec.Raw
    pg_status: msgspec.Raw
    entries: msgspec.Raw

    @property
    def process(self) -> Identity:
        """What identifies its process."""
        return self.host, self.pid, self.started

    def counts(self, steps: int) -> dict[str, float]:
        """What it spent its steps with, so far."""
        return {STEPS: steps, TIMED: self.timed, **self.spent_us, **self.computed_us}


_NOW = msgspec.json.Decoder(RankNow)
_TIMES = msgspec.json.Decoder(list[float])
_WAITS = msgspec.json.Decoder(list[float | None])


class _Version(msgspec.Struct):
    version: int


def decoded(data: bytes) -> RankNow:
    """The content of a file; ValueError if it is cut off, or of another version."""
    try:
        now = _NOW.decode(data)
    except msgspec.ValidationError:
        version = msgspec.json.decode(data, type=_Version).version
        if version == VERSION:
            raise
    else:
        version = now.version
    if version != VERSION:
        raise ValueError(f"version {version}; this busbw reads {VERSION}")
    return now


def new_steps(now: RankNow, least: int) -> tuple[int, list[float], list[float | None]]:
    """The number of the first of the steps from `least` on, their times and waits; all steps if the
    rank has made fewer, as with another model.
    """
    steps, waits = (bytes(numbers).strip(b"[] ") for numbers in (now.steps_us, now.waits_us))
    count = _length(steps)
    first = now.first_step
    if first < least <= first + count:
        first = least
    skipped = first - now.first_step
    return (
        first,
        _TIMES.decode(_last(steps, count - skipped)),
        _WAITS.decode(_last(waits, _length(waits) - skipped)),
    )


def _length(numbers: bytes) -> int:
    """How many numbers are between the brackets of a list."""
    return numbers.count(b",") + 1 if numbers else 0


def _last(numbers: bytes, count: int) -> bytes:
    """A list of the last of them, without decoding the others."""
    if count <= 0:
        return b"[]"
    return b"[" + b",".join(numbers.rsplit(b",", count)[-count:]) + b"]"
