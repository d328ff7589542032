"""Triton's interpreter at less cost."""

import dataclasses
import sys
from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
def patch_once() -> Iterator[None]:
    """For each function that a kernel calls, Triton's interpreter replaces all functions of its
    language again, which the start of the kernel has replaced: a third of its time. A fifth of the
    rest was for whether integers overflow, of which it says nothing unless it debugs.
    """
    tl = sys.modules.get("triton.language")  # by the root's conftest.py, where there is no GPU
    if tl is None:
        yield
        return
    from triton.runtime import interpreter

    replace, options = interpreter._patch_lang, interpreter.interpreter_builder.options
    assert not options.debug

    @cache
    def languages(function: FunctionType) -> list[Any]:
        values = list(function.__globals__.values())
        return [language for language in (tl, tl.core) if any(language is one for one in values)]

    def replaced(function: FunctionType) -> Any:
        if hasattr(tl.tensor, "__index__") and not any(
            tl.core.is_builtin(language.load) for language in languages(function)
        ):
            return interpreter._LangPatchScope()
        return replace(function)

    interpreter._patch_lang = replaced
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    yield
    interpreter._patch_lang, interpreter.interpreter_builder.options = replace, options
