"""busbw's own format: `busbw.result/1` as JSON."""

import msgspec

from busbw.core.errors import UsageError
from busbw.core.result import SCHEMA, Result


def render(result: Result) -> str:
    """The whole result, indented, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def read(data: bytes) -> Result:
    """The result; UsageError when the document has another schema, or is not as its schema says."""
    try:
        head = msgspec.json.decode(data, type=dict[str, object])
        schema = head.get("schema")
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Result)
    except msgspec.DecodeError as error:
        raise UsageError(f"busbw result: {error}", "give a file that busbw wrote; one that was cut off cannot be read") from error
    raise UsageError(
        f"busbw result: the schema is {schema!r}, this busbw reads '{SCHEMA}'", "read it with the busbw that wrote it, or a newer one"
    )
