"""Results of all kinds of runs as JSON, in busbw's own format: each kind has its schema."""

from typing import cast

import msgspec

from busbw.core import json_codec
from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.result import Outcome, Result
from busbw.pattern.replay.kind import ReplayResult
from busbw.train.kinds import PlanResult, TrainResult

AnyResult = Result | TrainResult | PlanResult | ReplayResult
SCHEMAS = {
    "busbw.result/1": Result,
    "busbw.training/1": TrainResult,
    "busbw.plan/1": PlanResult,
    "busbw.replay/1": ReplayResult,
}
# Before trainings and plans had schemas of their own, they were parts of busbw.result/1.
PARTS = {"plan": "busbw.plan/1", "training": "busbw.training/1"}
HINT = "give a file that busbw wrote; it must be complete"


def render(result: Outcome) -> str:
    """The whole result as indented JSON with a final newline."""
    return msgspec.json.format(json_codec.encode(result), indent=2).decode() + "\n"


def read(data: bytes) -> AnyResult:
    """The result; UsageError if the document has another schema or does not follow it."""
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(head.get("schema", b"null"))
        if isinstance(schema, str) and schema in SCHEMAS:
            for part, schema_of_part in PARTS.items():
                if schema == "busbw.result/1" and bytes(head.get(part, b"null")) != b"null":
                    schema = schema_of_part
                    head["schema"] = msgspec.Raw(msgspec.json.encode(schema))
                    data = msgspec.json.encode(head)
            result = json_codec.decode(data, cast(type[AnyResult], SCHEMAS[schema]))
            if isinstance(result, Result) and result.spec.collective not in BY_NAME:
                raise UsageError(
                    f"busbw result: spec.collective is '{result.spec.collective}'",
                    f"busbw knows {', '.join(BY_NAME)}",
                )
            return result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"busbw result: {error}", HINT) from error
    raise UsageError(
        f"busbw result: the schema is {schema!r}, this busbw reads {', '.join(SCHEMAS)}",
        "read it with a newer busbw",
    )
