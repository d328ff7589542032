"""Which link differs from the others: a stated test whose chance is a true upper bound."""

import random
from math import comb

import pytest

from busbw.check.trend.outliers import FALSE_ALARM_CHANCE, binomial_tail_bound, find_outliers
from busbw.check.trend.types import Growth


def growths(*counts: int, hours: float = 24.0) -> list[Growth]:
    return [
        Growth(
            host="h1", kind="NVLink", link=f"GPU 0 link {n}", counter="recovery", by=by, hours=hours
        )
        for n, by in enumerate(counts)
    ]


def names(findings) -> list[str]:
    return [outlier.growth.link for outlier in find_outliers(findings)]


def test_one_link_with_many_errors_is_named():
    (outlier,) = find_outliers(growths(*[0] * 143, 505))
    assert (outlier.growth.link, outlier.others, outlier.others_by, outlier.others_most) == (
        "GPU 0 link 143",
        143,
        0,
        0,
    )
    assert outlier.chance < 1e-12


def test_similar_links_are_not_named():
    assert names(growths(40, 52, 47, 61, 44, 50)) == []


def test_few_errors_name_no_link():
    assert names(growths(*[0] * 200, 4)) == [] and names(growths(*[0] * 200, 5)) == [
        "GPU 0 link 200"
    ]


def test_a_second_bad_link_is_not_hidden_by_the_first():
    assert sorted(names(growths(*[1] * 30, 9000, 300))) == ["GPU 0 link 30", "GPU 0 link 31"]


def test_two_links_have_no_others_to_differ_from():
    assert names(growths(0, 1000)) == []


def test_hours_count():
    long = growths(*[10] * 9, hours=24) + growths(100, hours=240)
    assert names(long) == [], "ten times the errors in ten times the hours"
    assert len(names(growths(*[10] * 9, hours=240) + growths(100, hours=24))) == 1


@pytest.mark.parametrize(
    ("count", "total", "share"), [(5, 10, 0.1), (3, 20, 0.05), (10, 10, 0.5), (30, 100, 0.2)]
)
def test_the_bound_is_above_the_exact_tail(count, total, share):
    exact = sum(
        comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count, total + 1)
    )
    assert exact <= binomial_tail_bound(count, total, share) < 1


def test_similar_links_are_named_less_often_than_stated():
    draw, wrong, runs = random.Random(7), 0, 400
    for _ in range(runs):
        counts = [0] * 48
        for _ in range(draw.choice((20, 200, 800))):
            counts[draw.randrange(48)] += 1
        wrong += bool(names(growths(*counts)))
    assert wrong / runs <= FALSE_ALARM_CHANCE
