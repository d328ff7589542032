"""The JSON schemas of all files that busbw writes, which the package contains, and the reference
page that lists them.
"""

import inspect
from typing import Any

import msgspec
from markdown_table import code, table

from busbw.core import pattern
from busbw.core.extensions import added
from busbw.host import snapshot
from busbw.report.file_kinds import KINDS
from busbw.report.results import structures

FOLDERS = {"busbw": "src/busbw/schemas", "busbw_accel": "accel/src/busbw_accel/schemas"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESULTS = {
    "busbw.result/1": "Sweep",
    "busbw.training/1": "Training",
    "busbw.plan/1": "Plan of a training",
    "busbw.replay/1": "Replay of a pattern",
    "busbw.backends/1": "Backends of a collective",
    "busbw.overlap/1": "A collective beside other work",
    "busbw.moe/1": "Dispatch and combine of a mixture of experts",
}
# files of JSON lines: the schema is that of a line
LINES = {pattern.SCHEMA, snapshot.SCHEMA} | {kind.name for kind in KINDS if kind.lines}
# What a file holds, and its structure, by the value of its key `schema`.
FILES: dict[str, tuple[str, Any]] = {
    **{name: (RESULTS[name], structure) for name, structure in structures().items()},
    **{kind.name: (kind.title, kind.structure) for kind in (*KINDS, *added("files"))},
    pattern.SCHEMA: ("Pattern of an application", pattern.Line),
    snapshot.SCHEMA: ("Snapshot of a machine", snapshot.ArchiveEntry),
}


def file_name(schema: str) -> str:
    """`busbw.result-1.schema.json` of `busbw.result/1`."""
    return f"{schema.replace('/', '-')}.schema.json"


def schemas(package: str) -> dict[str, str]:
    """The text of every schema of a package, by the name of its file."""
    return {
        file_name(schema): _text(schema, title, structure)
        for schema, (title, structure) in FILES.items()
        if _package(structure) == package
    }


def path(schema: str) -> str:
    """The file of a schema, from the root of the repository."""
    _, structure = FILES[schema]
    return f"{FOLDERS[_package(structure)]}/{file_name(schema)}"


def _package(structure: Any) -> str:
    """The package that a structure is in; busbw has those of lines of several kinds."""
    name = str(getattr(structure, "__module__", "")).partition(".")[0]
    return name if name in FOLDERS else "busbw"


def files() -> str:
    """The page of the reference."""
    rows = [
        (
            code(schema),
            title + ("; a line of the file" if schema in LINES else ""),
            f"[{file_name(schema)}](../../{path(schema)})",
        )
        for schema, (title, _) in FILES.items()
    ]
    return (
        "The key `schema` of a file says which kind it is. In a file of JSON lines it is in the"
        " first line. Each kind has a JSON schema, whose `$id` is `urn:busbw:KIND/VERSION`. An"
        " installed busbw has them too:\n\n"
        "```sh\n"
        'python -c "from importlib.resources import'
        " files; print(files('busbw') / 'schemas')\"\n"
        "```\n\n"
        "A file may have more keys than its"
        " schema names: new optional ones may appear under the same version. Not-a-number and"
        " infinities are the strings `nan`, `inf` and"
        f" `-inf`.\n\n"
        f"{table(('schema', 'content', 'file'), rows)}"
    )


def _text(schema: str, title: str, structure: Any) -> str:
    derived = _with_infinities(msgspec.json.schema(structure))
    for definition in derived["$defs"].values():
        definition["description"] = _paragraphs(definition["description"])
    whole = derived.get("$ref", "").rpartition("/")[2]  # '' for a file of several kinds of lines
    for kind, definition in derived["$defs"].items():
        if whole and kind != whole:
            continue  # a file of another kind within this one has its own
        its = definition.get("properties", {}).get("schema")
        if its is not None and "enum" not in its:  # else msgspec knows its value
            definition["properties"]["schema"] = {"const": schema}
    head = {"$schema": DIALECT, "$id": f"urn:busbw:{schema.removeprefix('busbw.')}", "title": title}
    return _with_a_line_for_each(head | derived)


def _with_a_line_for_each(document: dict[str, Any]) -> str:
    """JSON with a line for each key, and for each definition."""
    definitions = _lines(document.pop("$defs"), "  ")
    return f'{{\n{_lines(document, " ")},\n "$defs": {{\n{definitions}\n }}\n}}\n'


def _lines(part: dict[str, Any], indent: str) -> str:
    pairs = [
        f'{indent}"{key}": {msgspec.json.encode(value).decode()}' for key, value in part.items()
    ]
    return ",\n".join(pairs)


def _paragraphs(docstring: str) -> str:
    """A docstring with each paragraph on one line."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _with_infinities(part: Any) -> Any:
    """A schema that also allows the strings that stand for numbers which JSON lacks."""
    if isinstance(part, list):
        return [_with_infinities(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        rest = {key: value for key, value in part.items() if key != "type"}
        return {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}], **rest}
    return {key: _with_infinities(value) for key, value in part.items()}
