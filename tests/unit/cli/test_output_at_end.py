"""Output that is printed when a run ends."""

import pytest
from serving_results import backends

from busbw.backends import text
from busbw.cli.output import AtEnd
from busbw.measure.events import Started
from busbw.measure.record import RunRecord


def test_an_interrupted_run_prints_what_it_has_measured(capsys: pytest.CaptureFixture[str]) -> None:
    output = AtEnd(RunRecord(None), text.render, save_unasked=False)
    result = backends()
    result.complete = False
    output.take(Started(result))
    assert capsys.readouterr().out == ""
    output.run_aborted("interrupted")
    printed = capsys.readouterr().out
    assert "microseconds of a call" in printed
    assert "the run did not end; these rows are what was measured" in printed
