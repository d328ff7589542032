"""In the compat frontend errors name the options of nccl-tests, wherever busbw raised them."""

import re
from collections.abc import Callable

import pytest

from busbw.cli.perf_words import WORDS, in_compat
from busbw.cli.session import TooFewGpus
from busbw.core.errors import BusbwError
from busbw.core.reports import Stalled
from busbw.core.sweep import SweepSpec
from busbw.engines.registry import Opening, engine, refuse_network
from busbw.launch.control import SoloControl, join
from busbw.launch.diagnosis import Evidence, absent, conclude
from busbw.launch.failures import explain


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(BusbwError) as caught:
        call()
    return f"{caught.value.message}; {caught.value.hint}"


# Errors as busbw raises them, and a part of their text in the compat frontend.
RAISED = [
    (lambda: TooFewGpus(4, 2).hint, "ask for at most 2, or start it on more hosts with mpirun or srun"),
    (
        lambda: raised(lambda: engine("mpi").open(Opening(SoloControl(), SweepSpec(collective="all_reduce"), 0, 0, 0, 1, {}))),
        "give -g 4, or under mpirun",
    ),
    (lambda: raised(lambda: engine("nosuch")), "BUSBW_ENGINE: there is no engine 'nosuch'"),
    (lambda: raised(lambda: refuse_network("ib", "sim")), "add BUSBW_ENGINE=nccl or BUSBW_ENGINE=torch, or leave out --net"),
    (lambda: raised(lambda: join({}, expect=4)), "let busbw start the ranks (-g 4, without a launcher)"),
    (lambda: explain(1, "").hint, "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"),
    (lambda: absent(Evidence(1, {}, {}), 5).hint, "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"),
    (lambda: conclude(Evidence(1, {}, {0: Stalled(0, "h", 1, "timing", "", 1, 5.0, [])}), 0).hint, "or more time: -T 600"),
]
# Texts of errors that take a GPU or a running job to raise.
QUOTED = [
    ("-n 99: more than 16 ranks a core of this machine", "-t times -g is 99: more than 16 ranks a core of this machine"),
    ("-n counts ranks; iterations are --iters", "give fewer with -g and -t"),
    ("start it without mpirun: busbw run ... --engine sim -n 4", "start it without mpirun, with -g 4"),
    ("--engine nccl cannot run here: no GPU", "BUSBW_ENGINE=nccl cannot run here: no GPU"),
    ("choose another --datatype, --op or --engine", "choose another --datatype, --op or BUSBW_ENGINE"),
    ("give --json a path with room", "give -J a path with room"),
    ("leave out -n 4", "leave out -n 4"),
]


@pytest.mark.parametrize(("text", "wanted"), RAISED)
def test_raised_errors_name_options_of_nccl_tests(text: Callable[[], str], wanted: str) -> None:
    assert wanted in in_compat(text())


@pytest.mark.parametrize(("text", "wanted"), QUOTED)
def test_quoted_errors_name_options_of_nccl_tests(text: str, wanted: str) -> None:
    assert in_compat(text) == wanted


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in WORDS])
def test_every_pattern_has_an_example(pattern: str) -> None:
    texts = [text() for text, _ in RAISED] + [text for text, _ in QUOTED]
    assert any(re.search(pattern, text) for text in texts)
