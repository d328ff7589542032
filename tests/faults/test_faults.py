"""A sample of the fault runs: every one ends in time, with the right code, names the fault, and
leaves only its rows.
"""

from pathlib import Path

import faults
import moments
import netlab
import pytest

# One after the other: each needs all processors, and its limits are short.
pytestmark = [pytest.mark.netlab, pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]

SEED = 7
EACH = [faults.draw(SEED, number) for number in range(len(faults.KINDS))]


@pytest.mark.parametrize("fault", EACH, ids=str)
def test_a_fault_ends_the_run_with_the_right_error(fault: faults.Fault, tmp_path: Path) -> None:
    if reason := fault.kind.missing():
        pytest.skip(reason)
    for patience in (1.0, 4.0):  # a run too slow on a busy machine is repeated with longer limits
        folder = tmp_path / f"{patience:g}"
        folder.mkdir()
        try:
            outcome = faults.inject(fault, folder, netlab, patience)
        except netlab.Unavailable as error:
            pytest.skip(f"no emulated hosts: {error}")
        if outcome.fine or not outcome.may_be_slow:
            break
    assert outcome.fine, str(outcome)


def test_every_kind_of_fault_is_in_the_sample() -> None:
    assert {fault.kind.name for fault in EACH} == {kind.name for kind in faults.KINDS}


def test_a_seed_reproduces_its_faults() -> None:
    assert [str(faults.draw(3, number)) for number in range(50)] == [
        str(faults.draw(3, number)) for number in range(50)
    ]
    assert len({str(faults.draw(3, number)) for number in range(50)}) > 45


@pytest.mark.parametrize("number", [5, 8, 14, 18])  # every phase
def test_a_stopped_or_killed_rank_is_named(number: int, tmp_path: Path) -> None:
    outcome = moments.strike(moments.draw(SEED, number), tmp_path, patience=10.0)
    assert not outcome.wrong, outcome
