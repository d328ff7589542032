"""An error names the options of `busbw run`; the nccl-tests commands print it with their own."""

import ast
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import busbw
from busbw.cli.compat_errors import BY_HAND, REWORDINGS, text_of
from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.core.rank_messages import Stalled
from busbw.engines.registry import engine, refuse_network
from busbw.launch.control import SoloControl
from busbw.launch.diagnosis import StallEvidence, absent, conclude
from busbw.launch.failures import DRY_RUN_HINT, launcher_error
from busbw.measure.launch_plan import TooFewGpus
from busbw.measure.rank import failure_report
from busbw.measure.rank_failure import Failed, RankFailed, failure, write_failure
from busbw.measure.record import check_writable

SOURCES = Path(busbw.__file__).parent
NO_ENGINE = UsageError("the mpi engine needs ranks", "start it as `busbw run ... -np 4`", ["start"])
NOT_HERE = NoMeasurement("--engine nccl cannot run here: no GPU", "add one", ["engine"])
SIM = "start it without mpirun: busbw run ... --engine sim -np 4"
MANY = UsageError(
    "--ranks 99: more than 16", "--ranks 16 or fewer; iterations are --iters", ["ranks"]
)
ALONE = NoMeasurement(
    "split brain", "let busbw start them (busbw run ... -np 3), or", ["start_alone"]
)

STUCK = StallEvidence(1, {}, {0: Stalled(0, "h1", 7, "timing", "1M", 3, 30.0, ["wait"])})


def raised(function: Callable[..., object], *arguments: object) -> BusbwError:
    with pytest.raises(BusbwError) as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("error", "run", "compat"),
    [
        (raised(engine, "ncl"), "--engine: unknown engine", "BUSBW_ENGINE: unknown engine"),
        (
            raised(refuse_network, "busbw", "mpi"),
            "add --engine nccl or --engine torch, or",
            "add BUSBW_ENGINE=nccl or BUSBW_ENGINE=torch, or",
        ),
        (NOT_HERE, "error: --engine nccl cannot", "error: BUSBW_ENGINE=nccl cannot"),
        (TooFewGpus(4, 2), "or name more --hosts", "or start it on more hosts with mpirun or srun"),
        (raised(check_writable, Path("/no/x.json")), "--json /no/x.json", "-J /no/x.json"),
        (launcher_error(3, ""), f"hint: {DRY_RUN_HINT}", f"hint: {BY_HAND}"),
        (absent(StallEvidence(2, {}, {}), 5), f"hint: {DRY_RUN_HINT}", f"hint: {BY_HAND}"),
        (conclude(STUCK, 5), "or more time: --limit 600", "or more time: -T 600"),
        (NO_ENGINE, "start it as `busbw run ... -np 4`", "give -g 4"),
        (UsageError("sim", SIM, ["start_sim"]), SIM, "start it without mpirun, with -g 4"),
        (MANY, "--ranks 99: more", "-t times -g is 99: more"),
        (MANY, "--ranks 16 or fewer; iterations", "give fewer with -g and -t"),
        (ALONE, "(busbw run ... -np 3)", "(-g 3, without a launcher)"),
        (UsageError("leave out --ranks 4"), "leave out --ranks 4", "leave out --ranks 4"),
    ],
    ids=str,
)
def test_an_option_in_an_error_is_named_as_its_user_types_it(
    error: BusbwError, run: str, compat: str
) -> None:
    assert run in error.render()
    assert compat in text_of(error)
    if run != compat:
        assert run not in text_of(error)


def options_in_errors() -> set[str]:
    """The option ids that errors are raised with, in all sources."""
    ids = {"json"}  # check_writable chooses it
    texts = (file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))
    for text in (text for text in texts if "options=[" in text):
        for node in ast.walk(ast.parse(text)):
            is_options = isinstance(node, ast.keyword) and node.arg == "options"
            if is_options and isinstance(node.value, ast.List):
                ids.update(item.value for item in node.value.elts if isinstance(item, ast.Constant))
    return ids


def test_every_option_in_an_error_has_a_row() -> None:
    assert options_in_errors() == set(REWORDINGS)


def test_a_rank_reports_an_error_with_its_options_and_without_control_bytes(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_failure(failure_report(NOT_HERE, SoloControl()))
    line = capfd.readouterr().err.rstrip("\n")
    assert line.isprintable()
    assert "\\u00" not in line
    failed = failure(line)
    assert isinstance(failed, Failed)
    received = RankFailed(failed)
    received.add(", before the first row")
    assert "BUSBW_ENGINE=nccl cannot run here: no GPU, before the first row" in text_of(received)


def test_an_error_passes_between_processes_with_hint_and_options() -> None:
    received = pickle.loads(pickle.dumps(NOT_HERE))
    assert (str(received), received.hint, received.options) == (
        str(NOT_HERE),
        NOT_HERE.hint,
        NOT_HERE.options,
    )
