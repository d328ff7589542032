"""Every kind of file that busbw writes has a JSON schema in the package, and what is written
fits it.
"""

import json
import math
import re
from enum import Enum
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import jsonschema
import msgspec
import pytest

from busbw.core import json_codec
from busbw.report import results
from busbw.report.read import read

ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "src" / "busbw", ROOT / "accel" / "src" / "busbw_accel")
SCHEMAS = {path.name: path for source in SOURCES for path in (source / "schemas").iterdir()}
BENCHMARKS = ROOT / "benchmarks"
# No files for users: an archive of PyTorch, the state of a running lab, and a table of the package.
OTHERS = {"busbw.checkpoint/1", "busbw.lab/1", "busbw.reference-bands/1"}


def filled(kind: Any) -> Any:
    """A value of a type in which every field has a value other than its default; floats are
    those that JSON lacks.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        least = [one.ge for one in arguments if isinstance(one, msgspec.Meta) and one.ge]
        return least[0] if least else filled(arguments[0])
    if origin in (Union, UnionType):
        return filled(next(argument for argument in arguments if argument is not type(None)))
    if origin is Literal:
        return arguments[0]
    if origin in (list, tuple):
        return origin(filled(argument) for argument in arguments if argument is not Ellipsis)
    if origin is dict:
        return {filled(arguments[0]): filled(arguments[1])}
    if issubclass(kind, tuple):
        return kind(*map(filled, kind.__annotations__.values()))
    if issubclass(kind, msgspec.Struct):
        return kind(**{field.name: filled(field.type) for field in msgspec.structs.fields(kind)})
    if issubclass(kind, Enum):
        return next(iter(kind))
    return {float: math.inf, int: 0, str: "text", bool: True, bytes: b"bytes"}[kind]


def schema(name: str) -> dict[str, Any]:
    """The schema of files whose key `schema` is this."""
    path = SCHEMAS[f"{name.replace('/', '-')}.schema.json"]
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def fields_of(error: jsonschema.ValidationError) -> set[str | int]:
    """The fields of a document that an error is about, also in one of several schemas for it."""
    paths = [error, *(error.context or ())]
    return {path.absolute_path[0] for path in paths if path.absolute_path}


def test_every_kind_of_file_has_a_schema() -> None:
    schema_names: set[str] = set()
    for path in (path for source in SOURCES for path in source.rglob("*.py")):
        schema_names.update(
            re.findall(r"busbw\.[a-z][a-z-]*/\d+", path.read_text(encoding="utf-8"))
        )
    ids = {json.loads(path.read_text(encoding="utf-8"))["$id"] for path in SCHEMAS.values()}
    assert ids == {f"urn:busbw:{name.removeprefix('busbw.')}" for name in schema_names - OTHERS}
    assert len(ids) == len(SCHEMAS) > 20


def test_schemas_are_valid() -> None:
    """What several of them define alike is looked at once."""
    parts: dict[str, Any] = {}
    for path in SCHEMAS.values():
        whole = json.loads(path.read_text(encoding="utf-8"))
        for part in (*whole.pop("$defs", {}).values(), whole):
            parts[json.dumps(part)] = part
    jsonschema.Draft202012Validator.check_schema({"$defs": parts})


def test_a_file_with_every_field_fits_its_schema(generate: ModuleType) -> None:
    for name, (_, structure) in generate.reference_schemas.FILES.items():
        field_schema = schema(name)
        check = jsonschema.Draft202012Validator(field_schema)
        for kind in get_args(structure) or (structure,):
            value_of_kind = filled(kind)
            document = json.loads(json_codec.encode(value_of_kind)) | (
                {"schema": name} if "schema" in kind.__struct_fields__ else {}
            )
            check.validate(document)
            others = {key: [] if isinstance(value, dict) else {} for key, value in document.items()}
            wrong = {key for error in check.iter_errors(others) for key in fields_of(error)}
            assert wrong == others.keys(), name


@pytest.mark.parametrize(
    "file",
    [
        "all_reduce_2xh200_202611/run_1.json",
        "precise_2xh200_202611/precise_2.json",
        "train_2xh100_202611/25g_gpt2.json",
        "offload_1xh100_202611/train_3b.json",
        "plan_2xh200_202611/gpt2.json",
    ],
)
def test_a_result_fits_its_schema(file: str) -> None:
    document = json.loads(results.render(read((BENCHMARKS / file).read_bytes(), file)))
    jsonschema.Draft202012Validator(schema(document["schema"])).validate(document)


@pytest.mark.parametrize(
    "file",
    ["tests/hosts/no-nic.jsonl", "benchmarks/capture_2xh100_202611/gpt2.jsonl"],
    ids=["snapshot", "pattern"],
)
def test_every_line_of_a_file_of_lines_fits_its_schema(file: str) -> None:
    lines = [json.loads(line) for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    check = jsonschema.Draft202012Validator(schema(lines[0]["schema"]))
    for line in lines[:2000]:
        check.validate(line)
