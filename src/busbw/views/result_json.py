"""busbw's own format: `busbw.result/1` as JSON."""

import msgspec

from busbw.core import wire
from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.result import SCHEMA, Result

HINT = "give a file that busbw wrote; it must be complete"


def render(result: Result) -> str:
    """The whole result, indented, with a newline at its end."""
    return msgspec.json.format(wire.encode(result), indent=2).decode() + "\n"


def read(data: bytes) -> Result:
    """The result; UsageError when the document has another schema or does not follow it."""
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(head.get("schema", b"null"))
        if schema == SCHEMA:
            return _known(wire.decode(data, Result))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"busbw result: {error}", HINT) from error
    raise UsageError(
        f"busbw result: the schema is {schema!r}, this busbw reads '{SCHEMA}'", "read it with the busbw that wrote it, or a newer one"
    )


def _known(result: Result) -> Result:
    if result.spec.collective not in BY_NAME:
        raise UsageError(f"busbw result: spec.collective is '{result.spec.collective}'", f"busbw knows {', '.join(BY_NAME)}")
    return result
