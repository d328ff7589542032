"""Reading recorded samples and texts."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.core.pattern import Pattern

sys.path.insert(0, str(Path(__file__).parent))  # pattern_records.py, chakra_messages.py

from pattern_records import record

Read = Callable[..., Pattern]


@pytest.fixture
def samples(recorded: Path) -> Path:
    """The folder of recorded samples."""
    return recorded / "patterns"


@pytest.fixture
def sample(samples: Path) -> Read:
    """`sample("a.log", "b.log")`: the record of recorded files."""
    return lambda *names, **options: record(
        *((samples / name).read_bytes() for name in names), names=names, **options
    )


@pytest.fixture
def text() -> Read:
    """`text("...", "...")`: the record of files with these texts."""
    return lambda *texts, **options: record(*(text.encode() for text in texts), **options)
