"""In the compat face errors name the options of nccl-tests, wherever busbw raised them."""

import re
from pathlib import Path

import pytest

import busbw
from busbw.cli.perf_words import WORDS, in_compat
from busbw.cli.session import TooFewGpus

SOURCES = [path.read_text(encoding="utf-8") for path in Path(busbw.__file__).parent.rglob("*.py") if path.name != "perf_words.py"]


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in WORDS])
def test_every_pattern_fits_something_that_is_said(pattern: str) -> None:
    """With what the code puts in for a number or a name."""
    spoken = re.compile(pattern.replace(r"(\d+)", r"(\d+|{\w+})").replace(r"\w+", r"(?:\w+|{\w+})"))
    assert any(spoken.search(text) for text in SOURCES)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (TooFewGpus(4, 2).hint, "ask for at most 2, or start it on more hosts with mpirun or srun"),
        ("start it as `busbw run ... -n 4`, or under mpirun", "give -g 4, or under mpirun"),
        ("leave out -G, or use --engine nccl", "leave out -G, or use BUSBW_ENGINE=nccl"),
        ("choose another --datatype, --op or --engine", "choose another --datatype, --op or BUSBW_ENGINE"),
        ("--engine nccl cannot run here: no GPU", "BUSBW_ENGINE=nccl cannot run here: no GPU"),
        ("or more time: --limit 600", "or more time: -T 600"),
        ("leave out -n 4", "leave out -n 4"),
    ],
)
def test_options_of_busbw_run_become_what_there_is_instead(said: str, words: str) -> None:
    assert in_compat(said) == words
