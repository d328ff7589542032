"""Dashes and quotes that a word processor or web page made of ASCII ones."""

from collections.abc import Iterator

from busbw.check.base import failed, passed
from busbw.check.command.base import STAYS, Rule
from busbw.check.command.line import Line
from busbw.core.checking import CheckRow, Evidence, Found, Layer

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
QUOTES = "\u2018\u2019\u201c\u201d"

ROW = CheckRow(
    id="BW236",
    name="line-dashes",
    layer=Layer.LAUNCHER,
    title="dashes and quotes",
    right="- and ' and \", as a keyboard makes them",
    why="Documents and web pages turn -- into a long dash, and quotes into curved ones. A launcher takes a word that begins with such a "
    "dash for the program, and the shell keeps such quotes as letters of the value.",
    fix="type the word anew",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun",),
)


def look(line: Line) -> Iterator[Found]:
    """Each word."""
    strange = [word for word in line.argv if word[:1] in [*DASHES] or any(quote in word for quote in QUOTES)]
    if strange:
        evidence = Evidence("words", " ".join(strange[:4]), "ASCII")
        yield failed("", f"{strange[0]} has a dash or quote that is not ASCII", evidence, fix=f"type {strange[0]} anew, with - and '")
    else:
        yield passed("", "all dashes and quotes are ASCII")


CHECK = Rule(ROW, look)
