"""Options of an nccl-tests program after a launcher."""

from dataclasses import dataclass
from pathlib import Path

from busbw.check.command.line import Line, inner
from busbw.core.errors import UsageError
from busbw.core.sizes import parse_size

DEFAULT_BYTES = 32 << 20  # -b and -e
LONG = {"minbytes": "b", "maxbytes": "e", "stepfactor": "f", "stepbytes": "i", "ngpus": "g", "nthreads": "t"}


@dataclass(frozen=True, slots=True)
class Perf:
    """What a run of nccl-tests measures. Sizes in bytes; `stepped` says whether -f or -i is given."""

    name: str
    least: int
    most: int
    stepped: bool
    gpus: int  # of each thread
    threads: int

    @property
    def devices(self) -> int:
        """GPUs of each process."""
        return self.gpus * self.threads


def perf(line: Line) -> Perf | None:
    """The program if it is one of nccl-tests, like all_reduce_perf; None for others, and for options that are not sizes or numbers."""
    words = inner(line.program)
    at = next((index for index, word in enumerate(words) if Path(word).name.endswith("_perf")), None)
    if at is None:
        return None
    given = {}
    rest = list(words[at + 1 :])
    for index, word in enumerate(rest):
        name, _, attached = word[2:].partition("=") if word.startswith("--") else (word[1:2], "", word[2:])
        name = LONG.get(name, name)
        if word.startswith("-") and name in LONG.values():
            given[name] = attached or (rest[index + 1] if index + 1 < len(rest) else "")
    try:
        least, most = (parse_size(given[one]) if one in given else DEFAULT_BYTES for one in "be")
        gpus, threads = (int(given.get(one, "1")) for one in "gt")
    except (UsageError, ValueError):
        return None
    return Perf(Path(words[at]).name, least, most, "f" in given or "i" in given, gpus, threads)
