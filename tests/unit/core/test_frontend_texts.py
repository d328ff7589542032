"""Errors name the options of the frontend in use."""

import pytest

from busbw.core.errors import NoMeasurement
from busbw.core.frontend_texts import COMPAT, FRONTEND_TEXTS, RUN, frontend_text, render
from busbw.engines.registry import engine
from busbw.measure.launch_plan import TooFewGpus


@pytest.mark.parametrize("name", FRONTEND_TEXTS)
def test_every_option_reference_renders_in_both_frontends(name: str) -> None:
    run, compat = (render(frontend_text(name, 4), frontend) for frontend in (RUN, COMPAT))
    assert run != compat
    assert not any(mark in run + compat for mark in "{}\x02\x03")


@pytest.mark.parametrize(
    ("text", "run", "compat"),
    [
        (
            f"{frontend_text('start', 4)}, or under mpirun",
            "start it as `busbw run ... -n 4`, or under mpirun",
            "give -g 4, or under mpirun",
        ),
        (
            f"leave out -G, or use {frontend_text('engine', 'nccl')}",
            "leave out -G, or use --engine nccl",
            "leave out -G, or use BUSBW_ENGINE=nccl",
        ),
        (f"or with more time: {frontend_text('limit', 600)}", "or with more time: --limit 600", "or with more time: -T 600"),
        ("leave out -n 4", "leave out -n 4", "leave out -n 4"),
    ],
)
def test_option_references_follow_the_frontend(text: str, run: str, compat: str) -> None:
    assert (render(text, RUN), render(text, COMPAT)) == (run, compat)


def test_an_error_is_rendered_for_the_frontend() -> None:
    error = TooFewGpus(4, 2)
    assert error.hint == "ask for at most 2, or name more --hosts"
    assert error.render(COMPAT).endswith("ask for at most 2, or start it on more hosts with mpirun or srun")
    with pytest.raises(Exception, match="--engine: unknown engine 'ncl'"):
        engine("ncl")


def test_added_text_keeps_the_references() -> None:
    error = NoMeasurement(f"{frontend_text('engine', 'nccl')} cannot run here", "")
    error.template += ", before the first row"
    assert error.render(COMPAT) == "error: BUSBW_ENGINE=nccl cannot run here, before the first row"
