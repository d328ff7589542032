"""Element types and reduction operators are NCCL's, in the order nccl-tests runs them, with
their aliases.
"""

import numpy as np
import pytest

from busbw.core.dtypes import DTYPES, DType, dtype
from busbw.core.errors import UsageError
from busbw.core.redops import REDOPS, redop
from busbw.engines.host_probe import bits_type, scalar_type


def test_types_are_in_the_order_of_nccls_numbers() -> None:
    assert [row.name for row in DTYPES] == [
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "half",
        "float",
        "double",
        "bfloat16",
        "f8e4m3",
        "f8e5m2",
    ]
    assert [row.nccl for row in DTYPES] == list(range(12))


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_type_has_the_width_of_its_numpy_type(row: DType) -> None:
    assert scalar_type(row).itemsize == bits_type(row).itemsize == row.itemsize
    assert row.bits == 8 * row.itemsize
    if row.is_float:
        assert row.significand + row.exponent_bits == row.bits
    else:
        assert np.issubdtype(scalar_type(row), np.signedinteger) == (row.kind == "int")


def test_operators_are_in_the_order_of_o_all_with_nccls_numbers() -> None:
    assert [(row.name, row.nccl) for row in REDOPS] == [
        ("sum", 0),
        ("prod", 1),
        ("min", 3),
        ("max", 2),
        ("avg", 4),
        ("mulsum", None),
    ]


def test_every_name_finds_exactly_one_row() -> None:
    for row in DTYPES:
        assert all(
            dtype(name) is row and dtype(name.upper()) is row for name in (row.name, *row.aliases)
        )
    for op in REDOPS:
        assert all(
            redop(name) is op and redop(name.upper()) is op for name in (op.name, *op.aliases)
        )
    for names in ([(r.name, *r.aliases) for r in DTYPES], [(r.name, *r.aliases) for r in REDOPS]):
        all_names = [name for spellings in names for name in spellings]
        assert len(all_names) == len(set(all_names))


def test_unknown_names_are_refused_with_the_valid_names() -> None:
    with pytest.raises(UsageError, match="--datatype: unknown data type 'flaot'") as caught:
        dtype("flaot")
    assert caught.value.hint.startswith("did you mean float? the data types are ")
    assert all(row.name in caught.value.hint for row in DTYPES)
    with pytest.raises(UsageError, match="--op: unknown reduction operator 'xor'") as caught:
        redop("xor")
    assert all(row.name in caught.value.hint for row in REDOPS)


def test_fp8_has_minimum_nccl_and_gpu_versions() -> None:
    assert {row.name: (row.min_nccl, row.min_sm) for row in DTYPES if row.min_nccl} == {
        "f8e4m3": (22400, 90),
        "f8e5m2": (22400, 90),
    }
