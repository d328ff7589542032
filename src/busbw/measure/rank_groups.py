"""NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: the group of a process, by nccl-tests' rules."""

import re
from collections.abc import Mapping

from busbw.core.errors import UsageError
from busbw.core.sizes import parse_int

_FORM = re.compile(r"\s*(and|&|or|\||mod|%|div|/)[a-z]*\s*(?:0b([01]+)|([+-]?\w+))", re.IGNORECASE)


def color(process: int, environment: Mapping[str, str]) -> int:
    """The group of `process`; 0 without these variables.

    UsageError for MOD and DIV by less than 1.
    """
    mask = environment.get("NCCL_TESTS_SPLIT_MASK")
    if mask is not None:
        digits = re.match(r"\s*(?:0[xX])?([0-9a-fA-F]+)", mask)
        return process & int(digits.group(1), 16) if digits else 0
    text = environment.get("NCCL_TESTS_SPLIT")
    match = _FORM.match(text) if text else None
    if not match:
        return 0
    operation, binary, number = match.groups()
    operation, value = operation.lower(), int(binary, 2) if binary else parse_int(number)
    if operation in ("and", "&"):
        return process & value
    if operation in ("or", "|"):
        return process | value
    if value <= 0:
        raise UsageError(
            f"NCCL_TESTS_SPLIT={text}: dividing processes by {value}", "give a number above 0"
        )
    return process % value if operation in ("mod", "%") else process // value
