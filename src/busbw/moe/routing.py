"""The text of --routing, and the file of expert ids that it may name."""

import json
import math
from dataclasses import dataclass
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.given_file import MAX_FILE_BYTES, read_text
from busbw.core.sizes import counted

UNIFORM, ZIPF, HOT, FILE = "uniform", "zipf", "hot", "file"
LARGEST_EXPONENT = 10.0  # the first expert then has 99.9 % of all
EXAMPLES = {
    "uniform": "all experts alike",
    "zipf:1.0": "by a power law",
    "hot:0.3": "this share of the tokens chooses expert 0",
    "file:": "ids from a file",
}
HINT = (
    "write it like --routing uniform, --routing zipf:1.0, --routing hot:0.3 or --routing"
    " file:ids.csv"
)
FILE_FORM = "a line for each token with its experts, like 3,17,42; rank 0's tokens first"
FILE_HINT = f"write {FILE_FORM}"
Ids = list[list[int]]


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens choose experts.

    `value` is the exponent of zipf, or the share of tokens that choose expert 0 of hot. `path` is
    the file of ids.
    """

    kind: str
    value: float = 0.0
    path: str = ""


def parse_routing(text: str) -> Routing:
    """The routing that the text names; UsageError for another kind or a value out of range."""
    kind, _, value = text.partition(":")
    if kind == FILE and value:
        return Routing(FILE, path=value)
    if text == UNIFORM:
        return Routing(UNIFORM)
    if kind == ZIPF:
        return Routing(ZIPF, _number(text, value, LARGEST_EXPONENT))
    if kind == HOT:
        return Routing(HOT, _number(text, value, 1.0))
    raise UsageError(f"--routing {text}: no such routing", HINT)


def _number(text: str, value: str, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise UsageError(f"--routing {text}: '{value}' is not a number from 0 to {most:g}", HINT)
    return number


def check_shape(routing: Routing, experts: int, top_k: int) -> None:
    """UsageError if tokens cannot choose `top_k` different experts of so many."""
    if top_k > experts:
        raise UsageError(
            f"--top-k {top_k}: there are only {experts} experts", f"give --top-k {experts} or less"
        )
    if routing.kind == HOT and top_k == experts:
        raise UsageError(
            f"--routing hot with --top-k {top_k}: every token chooses all {experts} experts",
            "give a smaller --top-k, or --routing uniform",
        )


def check_experts(experts: int, ranks: int) -> None:
    """UsageError if ranks cannot have equal numbers of experts."""
    if experts % ranks:
        raise UsageError(
            f"--experts {experts}: they cannot be divided between {ranks} ranks",
            f"give a multiple of {ranks}",
        )


def read_ids(path: str, experts: int, top_k: int) -> Ids:
    """The expert ids of each token in a file, `top_k` for each.

    A line has the ids of a token, separated by commas, in brackets or not. A JSON document is a
    list of such lists. UsageError names the line or entry that is wrong.
    """
    option = f"--routing file:{path}"
    try:
        text = read_text(path, MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UsageError(f"{option}: {reason}", f"name a file of ids: {FILE_FORM}") from error
    ids: Ids = []
    for where, given in _entries(text, option):
        ids.append(_checked(given, experts, top_k, f"{option}: {where}"))
    if not ids:
        raise UsageError(f"{option}: it has no tokens", FILE_HINT)
    return ids


def _entries(text: str, option: str) -> list[tuple[str, list[Any]]]:
    """What is given for each token, and where."""
    if "".join(text[:64].split()).startswith("[["):
        try:
            tokens = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{option}: {error}", FILE_HINT) from error
        numbered = enumerate(tokens, 1)
        return [(f"entry {n}", one if isinstance(one, list) else [one]) for n, one in numbered]
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [
        (f"line {number}", line.removeprefix("[").removesuffix("]").split(","))
        for number, line in lines
        if line
    ]


def _checked(given: list[Any], experts: int, top_k: int, where: str) -> list[int]:
    ids: list[int] = []
    for value in given:
        expert = _id(value)
        if expert is None or not 0 <= expert < experts:
            larger = expert is not None and expert >= experts
            raise UsageError(
                f"{where}: '{str(value).strip()}' is not the id of an expert, 0 to {experts - 1}",
                "give the --experts that the file was written for" if larger else FILE_HINT,
            )
        if expert in ids:
            raise UsageError(f"{where}: expert {expert} is given twice", FILE_HINT)
        ids.append(expert)
    if len(ids) != top_k:
        raise UsageError(
            f"{where} has {counted(len(ids), 'id')}, and --top-k is {top_k}",
            f"give --top-k {len(ids)}, or {FILE_HINT}",
        )
    return ids


def _id(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value) if len(value) < 20 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def tokens_of_file(path: str, lines: int, ranks: int, tokens: int | None) -> int:
    """The tokens of each rank in a file with so many lines; UsageError if they do not fit.

    `tokens` is what --tokens asks for at most, None if it was not given.
    """
    option = f"--routing file:{path}"
    if lines % ranks:
        raise UsageError(
            f"{option}: {lines} tokens cannot be divided between {ranks} ranks",
            "start as many ranks as the file was written for",
        )
    if tokens is not None and lines != ranks * tokens:
        raise UsageError(
            f"{option} has {lines} tokens, but {ranks} ranks with {tokens} tokens each have"
            f" {ranks * tokens}",
            f"give --tokens {lines // ranks}, or start as many ranks as the file was written for",
        )
    return lines // ranks
