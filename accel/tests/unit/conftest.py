"""The fixtures of busbw's unit tests, and results of trainings."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),  # training_results.py
    str(HERE.parents[2] / "tests" / "unit"),  # results.py, damaged_results.py
    str(HERE.parent / "exchange"),
]

from training_results import planned, planned_for_record, planned_in_rounds, trained

from tests.unit.conftest import (
    library,
    logged,
    make,
    make_cell,
    no_pauses_between_readings_of_the_load,
)

__all__ = [
    "library",
    "logged",
    "make",
    "make_cell",
    "no_pauses_between_readings_of_the_load",
    "planned",
    "planned_for_record",
    "planned_in_rounds",
    "trained",
]
