"""Fuzz every reader of busbw: `python tools/fuzz/readers.py --seconds 60`.

Exit 1 if a command broke on a changed file.

Whole commands run in this process' children on real files that were changed. A command may refuse a
file (exit 2), find it bad (1) or undecidable (3). It may not end with a bug (4), by a signal, use
more than 20 s of CPU time or 2 GiB, or print control characters that it read. Files that broke a
command are kept in build/fuzz, with the command and its message.
"""

import argparse
import contextlib
import hashlib
import io
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mutations import mutated  # noqa: E402 - found by the path above
from targets import FILE, ROOT, SEED, TARGETS, Target  # noqa: E402

KEPT = ROOT / "build" / "fuzz"
BATCH = 40  # files for one child
CPU_S, MEMORY = 20, 2 << 30
BUG = 4
CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class Tally:
    """What came of a target's files."""

    codes: Counter[str] = field(default_factory=Counter)
    # by kind of failure, the file that is kept
    broken: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Fuzz in turn until the time is over, then print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a target's name")
    asked = parser.parse_args()
    import busbw.cli.main  # noqa: F401 - once, for all children

    targets = [one for one in TARGETS if asked.only in ("", one.name)]
    tallies = {one.name: Tally() for one in targets}
    end, batch = time.monotonic() + asked.seconds, 0
    while time.monotonic() < end:
        target = targets[batch % len(targets)]
        for line in _batch(target, asked.seed * 1_000_003 + batch):
            _count(tallies[target.name], target, line)
        batch += 1
    print(table(tallies))
    return int(any(one.broken for one in tallies.values()))


def table(tallies: dict[str, Tally]) -> str:
    """A line for each target, then the kinds of failure."""
    lines = [f"{'target':16} {'files':>7} {'exit 0':>7} {'1':>6} {'2':>7} {'3':>6} {'broken':>7}"]
    for name, one in tallies.items():
        counts = " ".join(
            f"{one.codes[code]:>{width}}"
            for code, width in (("0", 7), ("1", 6), ("2", 7), ("3", 6), ("broken", 7))
        )
        lines.append(f"{name:16} {one.codes.total():>7} {counts}")
    lines += [
        f"{name}: {kind}\n    {kept}"
        for name, one in tallies.items()
        for kind, kept in one.broken.items()
    ]
    return "\n".join(lines)


def _count(tally: Tally, target: Target, line: str) -> None:
    code, kind, kept = line.split("\t")
    tally.codes[code] += 1
    if kind and kind not in tally.broken:
        tally.broken[kind] = kept
        print(f"{target.name}: {kind}\n    {kept}", flush=True)


def _batch(target: Target, seed: int) -> Iterator[str]:
    """Lines `code TAB kind of failure TAB kept file` of one child, and one of its own if it
    died.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(target, seed, Path(folder), writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            yield from lines.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            command = (Path(folder) / "command").read_text().splitlines()[0]
            kind = f"ended by {signal.Signals(-status).name if status < 0 else status}: {command}"
            yield f"broken\t{kind}\t{_keep(Path(folder), target, kind)}"


def _child(target: Target, seed: int, folder: Path, writer: int) -> None:
    """Try a batch of changed files, then end without returning."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.update(HOME=str(folder), XDG_DATA_HOME=str(folder), NO_COLOR="1")
    os.chdir(folder)
    chance, seeds, seed_file = random.Random(seed), target.files(), folder / f"seed{target.suffix}"
    with os.fdopen(writer, "w", buffering=1) as report:
        for _ in range(BATCH):
            resource.setrlimit(
                resource.RLIMIT_CPU, (int(time.process_time()) + CPU_S, resource.RLIM_INFINITY)
            )
            seed_file.write_bytes(chance.choice(seeds))
            data = mutated(chance, chance.choice(seeds), seeds)
            report.write(_tried(target, chance.choice(target.commands), data, folder) + "\n")
    os._exit(0)


def _tried(target: Target, command: str, data: bytes, folder: Path) -> str:
    """The line of one file."""
    from busbw.cli.main import guarded

    file = folder / f"input{target.suffix}"
    file.write_bytes(data)
    (folder / "command").write_text(f"{command}\n")
    (folder / "OUT").mkdir(exist_ok=True)
    places = {
        FILE: str(file),
        SEED: str(folder / f"seed{target.suffix}"),
        "OUT": str(folder / "OUT"),
    }
    words = [
        re.sub("FILE|SEED|OUT", lambda found: places[found.group()], word)
        for word in command.split()
    ]
    if words[0] == "report":
        words.append("--force")
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = guarded(words)
    said, error = _text(out), _text(err)
    kind = ""
    if code == BUG:
        kind = f"bug: {_named(error)}: {command.split()[0]}"
    elif found := CONTROL.search(said + error):
        kind = f"prints {found.group()!r}: {command}"
    if not kind:
        return f"{code}\t\t"
    return f"broken\t{kind}\t{_keep(folder, target, kind, error)}"


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


def _named(error: str) -> str:
    """The exception and the last of busbw's own lines in a traceback."""
    places = re.findall(r'busbw/(\S+\.py)", line (\d+)', error)
    said = re.findall(r"a bug in busbw: (.*)", error)
    place = ":".join(places[-1]) if places else ""
    return f"{place} {said[-1][:120] if said else error[:120]}"


def _keep(folder: Path, target: Target, kind: str, error: str = "") -> Path:
    """Keep the file that broke a command, its command and message."""
    name = hashlib.sha256(kind.encode()).hexdigest()[:12]
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{name}{target.suffix}"
    kept.write_bytes((folder / f"input{target.suffix}").read_bytes())
    (KEPT / f"{name}.why").write_text(f"{kind}\n\n{error}")
    return kept


if __name__ == "__main__":
    sys.exit(main())
