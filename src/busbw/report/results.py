"""Results of all kinds of runs as JSON, in busbw's own format: each kind has its schema."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import msgspec

from busbw.backends import html as backends_html
from busbw.backends import result_checks as backends_checks
from busbw.backends import text as backends_text
from busbw.backends.compared import compared as compared_backends
from busbw.backends.types import BackendsResult
from busbw.core import json_codec
from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.extensions import ACCEL, FILES_OF_ACCEL, INSTALL_ACCEL, NotInstalled, added
from busbw.core.parts import PartsResult
from busbw.core.result import Outcome, Result
from busbw.moe import html as moe_html
from busbw.moe import result_checks as moe_checks
from busbw.moe import text as moe_text
from busbw.moe.compared import compared as compared_moe
from busbw.moe.types import MoeResult
from busbw.overlap import html as overlap_html
from busbw.overlap import result_checks as overlap_checks
from busbw.overlap import text as overlap_text
from busbw.overlap.compared import compared as compared_overlap
from busbw.overlap.types import OverlapResult
from busbw.pattern import html as pattern_html
from busbw.pattern.replay import text as replay_text
from busbw.pattern.replay.kind import ReplayResult

HINT = "give a file that busbw wrote; it must be complete"


@dataclass(frozen=True, slots=True)
class ResultKind:
    """A kind of result besides a sweep."""

    structure: type[Outcome]
    noun: Callable[[Any], str]  # what it is: `a training of mlp`
    # of the result, the terminal's width (None: all columns), and whether to show what NCCL ran
    table: Callable[[Any, int | None, bool], str]
    parts: Callable[[Any], list[Element]]  # those of a report's section
    # raises UsageError for figures that no run gives
    check: Callable[[Any], None] = lambda result: None
    markdown: Callable[[Any], str | None] = lambda result: None  # None where it is not made
    # without lines that only a running command needs; None where it is not made
    brief_text: Callable[[Any, int | None], str] | None = None
    # its times; None where they are not compared
    compared: Callable[[Any], PartsResult] | None = None

    @property
    def schema(self) -> str:
        """The value of the key `schema` in its files."""
        return _schema_of(self.structure)


REPLAY = ResultKind(
    ReplayResult,
    lambda result: f"a replay of {result.replay.spec.pattern}",
    lambda result, width, ran: replay_text.render_all(result, width, ran=ran),
    pattern_html.replay,
)
BACKENDS = ResultKind(
    BackendsResult,
    lambda result: f"backends of {result.spec.collective}",
    lambda result, width, ran: backends_text.render(result, width),
    backends_html.parts,
    backends_checks.check,
    compared=compared_backends,
)
OVERLAP = ResultKind(
    OverlapResult,
    lambda result: f"{result.spec.collective} beside {result.load}",
    lambda result, width, ran: overlap_text.render(result, width),
    overlap_html.parts,
    overlap_checks.check,
    compared=compared_overlap,
)
MOE = ResultKind(
    MoeResult,
    lambda result: f"a mixture of {result.moe.experts} experts",
    lambda result, width, ran: moe_text.render_all(result, width),
    moe_html.parts,
    moe_checks.check,
    compared=compared_moe,
)
# Before trainings and plans had schemas, they stood in busbw.result/1 under these keys.
OLDER_KEYS = {"plan": "busbw.plan/1", "training": "busbw.training/1"}


_OWN = (REPLAY, BACKENDS, OVERLAP, MOE)


def kinds() -> tuple[ResultKind, ...]:
    """All kinds, also of extensions."""
    return (*_OWN, *added("results"))


def structures() -> dict[str, type[Outcome]]:
    """The structures of all results by their schema, that of a sweep first."""
    of_kinds = {kind.schema: kind.structure for kind in kinds()}
    return {_schema_of(Result): Result, **of_kinds}


def kind_of(result: Outcome) -> ResultKind:
    """The kind of a result that is no sweep."""
    own = next((kind for kind in _OWN if isinstance(result, kind.structure)), None)
    return own or next(kind for kind in kinds() if isinstance(result, kind.structure))


def render(result: Outcome) -> str:
    """The whole result as indented JSON with a final newline."""
    return json_codec.indented(result)


def read(data: bytes) -> Outcome:
    """The result; UsageError if the document has another schema or does not follow it."""
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = _schema(head)
        structure = _structure(schema)
        if structure is not None:
            head["schema"] = msgspec.Raw(msgspec.json.encode(schema))
            result = json_codec.decode(msgspec.json.encode(head), structure)
            if isinstance(result, Result) and result.spec.collective not in BY_NAME:
                raise UsageError(
                    f"busbw result: spec.collective is '{result.spec.collective}'",
                    f"busbw knows {', '.join(BY_NAME)}",
                )
            return result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"busbw result: {error}", HINT) from error
    raise _unknown(schema)


def _schema(head: dict[str, msgspec.Raw]) -> object:
    schema: object = msgspec.json.decode(head.get("schema", b"null"))
    if schema == _schema_of(Result):
        for part, schema_of_part in OLDER_KEYS.items():
            if bytes(head.get(part, b"null")) != b"null":
                return schema_of_part
    return schema


def _structure(schema: object) -> type[Outcome] | None:
    """The structure of a document; None if its schema is that of no result."""
    if schema == _schema_of(Result):
        return Result
    if not isinstance(schema, str) or not schema.startswith("busbw."):
        return None
    return structures().get(schema)


def _schema_of(structure: type[Outcome]) -> str:
    return str(structure.__struct_config__.tag)


def _unknown(schema: object) -> UsageError:
    name, _, _ = str(schema).partition("/")
    if name in FILES_OF_ACCEL and not added("results"):
        return NotInstalled(
            f"{FILES_OF_ACCEL[name]}, which {ACCEL} reads; it is not installed", INSTALL_ACCEL
        )
    return UsageError(
        f"busbw result: the schema is {schema!r}, this busbw reads {', '.join(structures())}",
        "read it with a newer busbw",
    )
