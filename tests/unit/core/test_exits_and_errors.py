"""Exit codes are unique and explained, and every error has a code and a hint."""

import pickle
import traceback

import pytest

from busbw.core.errors import BusbwError, Exit, NcclTestsExit, NoMeasurement, UsageError, worst


@pytest.mark.parametrize("codes", [Exit, NcclTestsExit])
def test_codes_are_unique_fit_a_process_and_are_explained(
    codes: type[Exit | NcclTestsExit],
) -> None:
    values = [int(member) for member in codes.__members__.values()]
    assert len(values) == len(set(values))
    assert all(0 <= value <= 255 for value in values)
    assert len({code.meaning for code in codes}) == len(codes)
    assert all(code.meaning for code in codes)


def test_the_exit_codes_are_those_documented() -> None:
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 130]
    assert [int(code) for code in NcclTestsExit] == [0, 1, 2, 3, 4, 5, 6, 7, 255]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, Exit.USAGE), (NoMeasurement, Exit.UNKNOWN), (BusbwError, Exit.BUG)],
)
def test_each_error_ends_with_its_code(kind: type[BusbwError], code: Exit) -> None:
    assert kind("x").exit is code
    assert issubclass(kind, BusbwError)


def test_the_hint_of_an_error_follows_a_blank_line() -> None:
    assert (
        UsageError("-b 0: no", "start at 1 byte").render()
        == "error: -b 0: no\n\nhint: start at 1 byte"
    )
    assert UsageError("-b 0: no").render() == "error: -b 0: no"
    assert str(UsageError("-b 0: no", "start at 1 byte")) == "-b 0: no"


def test_a_traceback_shows_the_hint() -> None:
    error = UsageError("-b 0: no", "start at 1 byte")
    again = pickle.loads(pickle.dumps(error))
    assert again.hint == "start at 1 byte"
    for each in (error, again):
        assert "".join(traceback.format_exception(each)).splitlines()[-2:] == [
            "busbw.core.errors.UsageError: -b 0: no",
            "hint: start at 1 byte",
        ]
    assert not hasattr(UsageError("-b 0: no"), "__notes__")


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], Exit.OK),
        ([Exit.OK, Exit.OK], Exit.OK),
        ([Exit.UNKNOWN, Exit.OK], Exit.UNKNOWN),
        ([Exit.OK, Exit.BAD, Exit.UNKNOWN], Exit.BAD),
    ],
)
def test_a_bad_answer_outweighs_an_unknown_one(codes: list[Exit], code: Exit) -> None:
    assert worst(codes) is code
