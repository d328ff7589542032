"""Dashes and quotes that a word processor or web page replaced."""

from collections.abc import Iterator

from busbw.check.base import failed, passed
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
QUOTES = "\u2018\u2019\u201c\u201d"

ROW = CheckRow(
    id="BW236",
    name="line-dashes",
    layer=Layer.LAUNCHER,
    title="dashes and quotes",
    right="ASCII - ' and \"",
    why="Documents and web pages turn -- into a long dash, and straight quotes into curly ones. A launcher takes a word with such a dash "
    "for the program. The shell keeps curly quotes as part of the value.",
    fix="retype the word",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun",),
)


def look(line: Line) -> Iterator[Found]:
    """Each word."""
    strange = [word for word in line.argv if word[:1] in [*DASHES] or any(quote in word for quote in QUOTES)]
    if strange:
        evidence = Evidence("words", " ".join(strange[:4]), "ASCII")
        yield failed(
            "",
            f"{strange[0]} has a dash or quote that is not ASCII",
            evidence,
            fix=filled("retype {text} with plain - and quotes", text=strange[0]),
        )
    else:
        yield passed("", "all dashes and quotes are ASCII")


CHECK = Rule(ROW, look)
