"""How the code reads and starts, in numbers: python tools/code_figures.py [ROOT]

For each distribution: files, lines and statements, docstrings, and class names that stand for
several classes. For `busbw run` on the simulated engine: the modules it imports, and the functions
that it runs. For short commands: their CPU seconds. ROOT is another checkout, to compare with.
"""

import ast
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DISTRIBUTIONS = {"busbw": "src/busbw", "busbw-accel": "accel/src/busbw_accel"}
GENERATED = ("docs/reference", "docs/man", "accel/man", "src/busbw/schemas")
LONGEST = 400  # lines of a file
RUN = ["busbw", "run", "all_reduce", "--engine", "sim", "-b", "1M", "-e", "1M", "--no-history"]
COMMANDS = (["--version"], ["--help"], ["run", "--help"], RUN[1:])
STARTS = 9  # of each command, of which the median counts
# Runs RUN in a process of its own, the second time under a profiler: what importing runs is left
# out.
PROBE = """
import json, os, sys, threading
from busbw.cli.main import main
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
main(sys.argv[1:])
ran = set()
def profile(frame, event, _):
    code = frame.f_code
    if event == "call" and "busbw" in code.co_filename and code.co_name[0] != "<":
        ran.add((code.co_filename, code.co_name, code.co_firstlineno))
threading.setprofile(profile); sys.setprofile(profile)
main(sys.argv[1:])
sys.setprofile(None)
files = [m.__file__ for n, m in sys.modules.items() if n.startswith("busbw") and m.__file__]
os.write(out, json.dumps([files, sorted(ran)]).encode())
"""


@dataclass
class Counted:
    """What was counted in one distribution. `lines` are those of each file."""

    lines: list[int] = field(default_factory=list)
    statements: int = 0
    functions: int = 0
    documented: int = 0
    docstring_lines: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count one file."""
        self.lines.append(len(text.splitlines()))
        for node in ast.walk(ast.parse(text)):
            self.statements += isinstance(node, ast.stmt)
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] += 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions += 1
                self.documented += ast.get_docstring(node) is not None
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                self.docstring_lines += _docstring_lines(node)


def _docstring_lines(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def of_code(root: Path) -> Iterator[str]:
    """A paragraph for each distribution, and the lines of generated files."""
    for name, folder in DISTRIBUTIONS.items():
        counted = Counted()
        for path in sorted((root / folder).rglob("*.py")):
            counted.add(path.read_text(encoding="utf-8"))
        if not counted.lines:
            continue
        repeated = {name: count for name, count in counted.classes.items() if count > 1}
        yield (
            f"{name}: {len(counted.lines)} files, {sum(counted.lines)} lines,"
            f" {counted.statements} statements, median {statistics.median(counted.lines):.0f}"
            f" lines, {sum(size > LONGEST for size in counted.lines)} over {LONGEST}\n"
            f"  {len(repeated)} class names for {sum(repeated.values())} of"
            f" {counted.classes.total()} classes\n"
            f"  docstrings: {counted.docstring_lines} lines, on {counted.documented} of"
            f" {counted.functions} functions"
        )
    files = [path for folder in GENERATED for path in (root / folder).glob("*") if path.is_file()]
    lines = sum(len(path.read_bytes().splitlines()) for path in files)
    yield f"generated: {lines} lines in {len(files)} files"


def of_run(root: Path) -> str:
    """The modules that a simulated run imports, and the functions that it runs."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *RUN],
        env=_environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    files, ran = json.loads(done.stdout)
    lines = sum(len(Path(file).read_bytes().splitlines()) for file in files)
    of_functions = len({file for file, _, _ in ran})
    return (
        f"{' '.join(RUN)}\n  imports {len(files)} modules with {lines} lines, and runs {len(ran)}"
        f" functions in {of_functions} files"
    )


def of_start(root: Path, words: list[str]) -> str:
    """The CPU seconds of a command."""
    command = [sys.executable, "-m", "busbw", *words]
    times_s = []
    for _ in range(STARTS):
        before = os.times()
        subprocess.run(
            command,
            env=_environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        after = os.times()
        times_s.append(sum(after[2:4]) - sum(before[2:4]))
    median_s, low_s, high_s = statistics.median(times_s), min(times_s), max(times_s)
    return f"busbw {' '.join(words)}: {median_s:.2f} s of CPU ({low_s:.2f} to {high_s:.2f})"


def _environment(root: Path) -> dict[str, str]:
    """Modules of the checkout, with compiled modules kept, as where busbw is installed."""
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'accel' / 'src'}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def main(words: list[str]) -> None:
    """Print all figures of a checkout."""
    root = Path(words[0] if words else ".").resolve()
    for paragraph in of_code(root):
        print(paragraph)
    print(of_run(root))
    for command in COMMANDS:
        print(of_start(root, list(command)))


if __name__ == "__main__":
    main(sys.argv[1:])
