"""Names in --backends."""

import pytest

from busbw.core.backend_names import parse_names, row_of
from busbw.core.errors import UsageError

ROWS = {"deepep": 1, "alltoallv": 2}


def test_names_are_parsed_in_their_order() -> None:
    assert parse_names(ROWS, "") == []
    assert parse_names(ROWS, "alltoallv, deepep,") == ["alltoallv", "deepep"]


def test_names_that_are_unknown_or_given_twice_are_refused() -> None:
    assert row_of(ROWS, "deepep") == 1
    with pytest.raises(UsageError, match=r"^--backends: unknown backend 'deep'"):
        parse_names(ROWS, "deep")
    with pytest.raises(UsageError, match=r"^--backends deepep,deepep: deepep is named twice"):
        parse_names(ROWS, "deepep,deepep")
    with pytest.raises(UsageError, match="--backends ' , ': no backend is named"):
        parse_names(ROWS, " , ")
