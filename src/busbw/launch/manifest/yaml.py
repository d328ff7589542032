"""A writer of YAML for manifests: mappings, lists, text, whole numbers and truth values, in block style."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Node: TypeAlias = "Mapping[str, Node] | Sequence[Node] | str | int | bool"

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
# Words that YAML 1.1 reads as truth values or nothing, in any case.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
# JSON may hold these as they are, YAML may not.
_HIDDEN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def dump(node: Node) -> str:
    """The document, with a newline at its end."""
    return "\n".join(_lines(node)) + "\n"


def _lines(node: Node) -> list[str]:
    if isinstance(node, Mapping) and node:
        return [line for key, value in node.items() for line in _entry(f"{_scalar(key)}:", value, "  ")]
    if isinstance(node, Sequence) and not isinstance(node, str) and node:
        return [line for value in node for line in _item(value)]
    return [_scalar(node)]


def _entry(head: str, value: Node, indent: str) -> list[str]:
    if _nested(value):
        return [head, *(indent + line for line in _lines(value))]
    return [f"{head} {_scalar(value)}"]


def _item(value: Node) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _nested(value: Node) -> bool:
    return not isinstance(value, str | int | bool) and len(value) > 0


def _scalar(value: Node) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # JSON's scalars, and its empty {} and [], are YAML.
    return _HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", json.dumps(value, ensure_ascii=False))
