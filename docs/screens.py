"""Output of commands in pages, made again from recorded runs: `python docs/generate.py`.

A comment before a code block says how its output is made:

    <!-- screen: run="show shown.json" in=benchmarks/visits_202611 keep=:9,-6: -->

`run` is the command to run, without `busbw`; without it, it is the one that the block shows after
`$ busbw`. `in` is the folder that it runs in, from the root of the repository. `keep` has the lines
of the output that the block shows, as Python's slices; `...` stands for those left out. Files of
`copy`, such as copy=run.txt=tests/recorded/run.txt, are in the folder for the command only.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 80
_SCREEN = re.compile(
    r"""(?P<head><!--[ ]screen:?(?P<how>[^\n]*?)[ ]-->\n\n?```\w+\n
    (?P<typed>(?:\$[ ](?:[^\n]*\\\n)*[^\n]*\n)?))   # a command, and the lines it continues on
    (?P<output>.*?)```\n""",
    re.DOTALL | re.VERBOSE,
)
_TYPED = "$ busbw "


def pages() -> list[Path]:
    """The pages that may have screens."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(text: str) -> str:
    """The text of a page with the output of all its screens made again."""
    return _SCREEN.sub(lambda match: f"{match['head']}{_output(match)}```\n", text)


def stale() -> list[Path]:
    """The pages that have outdated screens."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    return [page for page, text in texts.items() if renewed(text) != text]


def write() -> None:
    """Make the screens of all pages again."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = renewed(text)
        if new != text:
            page.write_text(new, encoding="utf-8")


def _output(match: re.Match[str]) -> str:
    how = dict(word.split("=", 1) for word in shlex.split(match["how"]))
    typed = match["typed"].replace("\\\n", "").strip().removeprefix(_TYPED)
    words = shlex.split(how.get("run", typed))
    with _folder(ROOT / how.get("in", "."), how.get("copy", "")):
        lines = run(words).splitlines(keepends=True)
    return "".join(_kept(lines, how.get("keep", ":")))


@contextlib.contextmanager
def _folder(folder: Path, copies: str) -> Iterator[None]:
    """Work in the folder, or in a temporary one with these copies."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary:
        for copy in filter(None, copies.split(",")):
            name, source = copy.split("=", 1)
            shutil.copy(ROOT / source, Path(temporary) / name)
        os.chdir(temporary if copies else folder)
        try:
            yield
        finally:
            os.chdir(before)


def run(words: list[str]) -> str:
    """What `busbw WORDS` prints to a pipe; SystemExit if it prints nothing."""
    from busbw.cli.main import guarded

    printed, errors = io.StringIO(), io.StringIO()
    arguments, sys.argv = sys.argv, ["busbw", *words]
    variables = dict(os.environ)
    # A user's history and own runs are none of the documentation's.
    os.environ.update(BUSBW_HISTORY="false", BUSBW_REFERENCE="false")
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            guarded(words)
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(variables)
    if not printed.getvalue():  # else a page would lose its screen without a word
        raise SystemExit(f"error: busbw {shlex.join(words)} printed nothing: {errors.getvalue()}")
    return printed.getvalue()


def _kept(lines: list[str], slices: str) -> list[str]:
    """The lines of the slices, with `...` for each gap."""
    kept: list[str] = []
    end = 0
    for text in slices.split(","):
        bounds = [int(bound) if bound else None for bound in text.split(":")]
        start, stop, _ = slice(*bounds).indices(len(lines))
        if start > end:
            kept.append("...\n")
        kept += lines[start:stop]
        end = stop
    if end < len(lines):
        kept.append("...\n")
    return kept
