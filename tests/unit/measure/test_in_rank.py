"""Messages to the user from a rank under an outer launcher."""

import pytest

from busbw.cli.output import SweepOutput
from busbw.cli.streams import bug
from busbw.core.rank_messages import Here, Stalled
from busbw.core.result import Result
from busbw.core.sweep import SweepSpec
from busbw.measure.as_rank import stall_reporter
from busbw.measure.events import Started
from busbw.measure.rank import failure_report
from busbw.measure.record import RunRecord
from busbw.report.registry import view

SPEC = SweepSpec(collective="all_reduce")


def test_a_stalled_rank_is_recorded_once_before_nccls_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = SweepOutput(RunRecord(), view("csv"))
    output.take(Started(Result(SPEC)))
    report = stall_reporter(output)
    report(Here(0, "h1", 7))
    for library in ("", "Job summary"):
        report(Stalled(0, "h1", 7, "timing", "8", 4, 1.0, library=library))
    assert output.record.result is not None
    assert output.record.result.errors == ["timing of 8 made no progress"]
    stderr = capsys.readouterr().err
    assert stderr.count("error: rank 0 on h1: timing of 8 (step 4) made no progress for 1 s") == 1
    assert stderr.endswith("Job summary\n")
    report(Stalled(0, "h1", 7, "verify", "8", 5, 1.0))
    assert output.record.result.errors[1:] == ["verify of 8 made no progress"]


class OutOfMemoryError(RuntimeError):
    """As PyTorch raises it for the memory of a GPU."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError("Unable to allocate 1 GiB"), 3),
        (OutOfMemoryError("CUDA"), 3),
        (OSError(12, "Cannot allocate memory"), 3),
        (OSError(5, "I/O"), 4),
    ],
)
def test_a_rank_out_of_memory_is_not_a_bug(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = failure_report(error, None)
    assert failed.exit == code
    assert (
        ("out of memory: " in failed.message) is ("please report" not in failed.hint) is (code == 3)
    )
    assert bug(error) == code
    assert ("a bug in busbw" in capsys.readouterr().err) is (code == 4)
