"""The picture of a plan over the rate between hosts."""

from xml.etree.ElementTree import tostring

import pytest

from busbw_accel.train import html
from busbw_accel.train.network_picture import HIGHEST, LOWEST, AtRate, ranges
from busbw_accel.train.plan_types import ExchangeRound, LocalExchange


def test_neighbouring_rates_with_one_recommendation_are_a_range():
    found = [AtRate(rate, {}, name) for rate, name in ((LOWEST, "a"), (2e9, "a"), (HIGHEST, "b"))]
    assert ranges(found) == [("a", LOWEST, 2e9), ("b", HIGHEST, HIGHEST)]


def test_a_plan_of_several_hosts_has_the_picture(planned):
    page = "".join(tostring(part, "unicode") for part in html.plan(planned))
    assert "Which method at which bandwidth" in page
    planned.training.hosts = 1
    assert "Which method at which bandwidth" not in "".join(
        tostring(part, "unicode") for part in html.plan(planned)
    )


def test_local_steps_wait_for_what_their_delay_does_not_hide():
    measured = ExchangeRound([], [], change_s=1.0, change_busy_s=0.2)
    assert LocalExchange(10).wait_s(measured, 0.1) == pytest.approx(0.1)
    assert LocalExchange(10, delay=4).wait_s(measured, 0.1) == pytest.approx(0.06)
    assert LocalExchange(10, delay=9).wait_s(measured, 0.1) == pytest.approx(0.02)
