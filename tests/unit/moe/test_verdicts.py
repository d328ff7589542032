"""Which backend is the fastest at which number of tokens."""

import moe_results

from busbw.moe.text import render_all
from busbw.moe.types import MoeResult, MoeRow
from busbw.moe.verdicts import by_tokens, spans_text
from busbw.moe.volumes import DIRECTIONS

VISITS = 10


def timed(tokens: int, backend: str, us: float, **fields) -> MoeRow:
    """Visits whose times scatter by 0.3 % around `us`."""
    row = moe_results.row(tokens, "dispatch", (0.1, 0.8, 0.1), backend=backend, **fields)
    row.whole.samples_s = [us * 1e-6 * (1 + number / 3000) for number in range(VISITS)]
    row.whole.visits = [1] * VISITS
    row.whole.time_s = us * 1e-6
    return row


def both(tokens: int, first_us: float, second_us: float) -> list[MoeRow]:
    return [timed(tokens, "alltoallv", first_us), timed(tokens, "deepep", second_us)]


def test_fastest_is_named_with_how_much_the_next_one_is_slower() -> None:
    (found,) = by_tokens(both(128, 150.0, 100.0))
    assert (found.tokens, found.names) == (128, ("deepep",))
    assert f"{found.ratio:.3f}" == "1.500"


def test_less_than_two_percent_is_not_decided() -> None:
    (found,) = by_tokens(both(128, 100.0, 101.5))
    assert found.names == ("alltoallv", "deepep")


def test_a_backend_alone_or_with_wrong_data_is_not_compared() -> None:
    assert by_tokens([timed(128, "deepep", 1.0)]) == []
    assert by_tokens([timed(128, "alltoallv", 1.0), timed(128, "deepep", 1.0, wrong=1)]) == []


def test_neighboring_numbers_of_tokens_are_one_span() -> None:
    rows = [*both(128, 200.0, 100.0), *both(256, 150.0, 100.0), *both(512, 100.0, 100.0)]
    assert spans_text(by_tokens([*rows, *both(1024, 100.0, 120.0)])) == (
        "deepep at 128 to 256 tokens (1.50x to 2.00x), alltoallv or deepep at 512 tokens,"
        " alltoallv at 1024 tokens (1.20x)"
    )


def of_two_backends() -> MoeResult:
    """Each row of the alltoallv is followed by one that separates fewer phases."""
    result = moe_results.result()
    result.rows = []
    for tokens in (2048, 4096):
        for direction in DIRECTIONS:
            row = moe_results.row(tokens, direction, (0.1, 0.8, 0.1))
            other = moe_results.row(tokens, direction, (0.1, 0.6, 0.3), backend="deepep")
            del other.phases["pack" if direction == "dispatch" else "reduce"]
            other.whole.time_s *= 0.7
            for one in (row, other):
                one.whole.samples_s, one.whole.visits = [one.whole.time_s] * VISITS, [1] * VISITS
            result.rows += [row, other]
    result.library.versions = {"torch": "2.11.0", "deepep": "1.2.1"}
    result.left_out = {"deepep at 128 tokens": "too few"}
    return result


def test_text_has_backends_beside_each_other(golden) -> None:
    text = render_all(of_two_backends(), 80)
    assert max(map(len, text.splitlines())) <= 80
    golden("moe_backends.txt", text)
