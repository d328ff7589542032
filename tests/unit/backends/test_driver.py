"""Starts of ranks over each NIC: one that fails is left out, and what the file says meanwhile."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busbw.backends import driver
from busbw.backends.kind import SizeMeasured
from busbw.backends.rails import group_name
from busbw.backends.types import (
    EAGER,
    BackendsJob,
    BackendsResult,
    BackendsRow,
    BackendTime,
    MeasuredRail,
)
from busbw.core.errors import BusbwError, Exit, NoMeasurement
from busbw.core.result import Cell, EngineLibrary, RankDevice, World
from busbw.core.sweep import SweepSpec
from busbw.host.rails import NicChoice
from busbw.measure.events import Ended, Started, now
from busbw.measure.rank_failure import Failed, RankFailed
from busbw.measure.record import RunRecord
from busbw.measure.sink import INTERRUPTED, Sink
from busbw.measure.target import LaunchTarget

RAILS = [NicChoice("eth0"), NicChoice("eth1")]
SPEC = SweepSpec(collective="sendrecv", datatype="bfloat16")
JOB = BackendsJob(engine="torch", sweep=SPEC, rails=RAILS, blocks=4)
Failure = Callable[[], BaseException]


def rank_failed(code: Exit = Exit.UNKNOWN) -> RankFailed:
    """As launched ranks report an error of theirs."""
    return RankFailed(Failed("no backend can run", "", int(code), 0, "h1", "NoMeasurement"))


def started(name: str) -> BackendsResult:
    return BackendsResult(
        spec=SPEC,
        default=f"gloo@{name}",
        backends=[f"gloo@{name}"],
        blocks=JOB.blocks,
        rails=[MeasuredRail(name, 1e9, {"UCX_NET_DEVICES": name})],
        environment={"UCX_TLS": "tcp"},
        library=EngineLibrary("torch", 0, {"torch": "2.11.0", "backend": "gloo"}),
        world=World([RankDevice(rank, 1, f"h{rank}", 0, "", "CPU") for rank in range(2)], 2),
    )


class NotedSink(Sink):
    """With a file, and its notes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(RunRecord(folder / "rails.json"))
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def read(self) -> dict[str, Any]:
        assert self.record.file is not None
        read: dict[str, Any] = json.loads(self.record.file.read_bytes())
        return read


@pytest.fixture
def sink(tmp_path: Path) -> NotedSink:
    return NotedSink(tmp_path)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, sink: NotedSink) -> Callable[..., list[Any]]:
    """Lets ranks fail over some rails, before they have joined, after that, or at their end. The
    list that it returns has, for each start, whether the file says then that it is complete.
    """

    def let(**failures: dict[str, Failure]) -> list[Any]:
        complete: list[Any] = []

        def fail(when: str, name: str) -> None:
            if name in failures.get(when, {}):
                raise failures[when][name]()

        def launch(job: BackendsJob, _where: LaunchTarget, to: Sink) -> None:
            complete.append(sink.read()["complete"] if sink.record.result else None)
            name = group_name(job.rails)
            fail("early", name)
            to.take(Started(started(name)))
            time = BackendTime(backend=f"gloo@{name}", mode=EAGER, cell=Cell(1e-3, 1e6, 1e6))
            to.take(SizeMeasured(BackendsRow(size_bytes=1024, times=[time])))
            fail("late", name)
            to.take(Ended(now(), {}))
            fail("at_end", name)

        monkeypatch.setattr("busbw.measure.supervise.launch", launch)
        return complete

    return let


def measured(sink: NotedSink, job: BackendsJob = JOB) -> BackendsResult:
    result = driver.measure(job, LaunchTarget(), sink)
    assert result is not None
    return result


@pytest.mark.parametrize("name", ["all", "eth0", "eth1"])
def test_a_nic_over_which_ranks_fail_is_left_out(
    name: str, sink: NotedSink, starts: Callable[..., Any]
) -> None:
    starts(early={name: rank_failed})
    result = measured(sink)
    others = [each for each in ("all", "eth0", "eth1") if each != name]
    reason = "rank 0 on h1: no backend can run"
    assert result.left_out == {name: reason}
    assert [rail.name for rail in result.rails] == others
    assert [time.backend for time in result.rows[0].times] == [f"gloo@{each}" for each in others]
    assert sink.read()["left_out"] == {name: reason}
    assert sink.read()["complete"]
    assert sink.notes == [f"note: {name} is left out: {reason}"]


@pytest.mark.parametrize("name", ["all", "eth0", "eth1"])
def test_a_nic_that_fails_later_keeps_its_rows_and_its_reason(
    name: str, sink: NotedSink, starts: Callable[..., Any]
) -> None:
    starts(late={name: lambda: NoMeasurement("a rank was lost")})
    measured(sink)
    read = sink.read()
    assert read["left_out"] == {name: "a rank was lost"}
    assert [rail["name"] for rail in read["rails"]] == ["all", "eth0", "eth1"]
    assert len(read["rows"][0]["times"]) == 3
    assert read["complete"]


def test_without_any_nic_the_last_reason_is_the_error(
    sink: NotedSink, starts: Callable[..., Any]
) -> None:
    starts(early=dict.fromkeys(("all", "eth0", "eth1"), rank_failed))
    with pytest.raises(RankFailed, match="no backend can run"):
        measured(sink)
    assert len(sink.notes) == 3


@pytest.mark.parametrize("code", [Exit.USAGE, Exit.BUG])
def test_wrong_input_and_bugs_end_the_run(
    code: Exit, sink: NotedSink, starts: Callable[..., Any]
) -> None:
    complete = starts(early={"eth0": lambda: rank_failed(code)})
    with pytest.raises(BusbwError) as raised:
        measured(sink)
    assert raised.value.exit is code
    assert len(complete) == 2
    assert sink.read()["errors"] == [raised.value.message]
    assert not sink.read()["complete"]


def test_the_file_is_not_complete_before_all_nics_are_measured(
    sink: NotedSink, starts: Callable[..., Any]
) -> None:
    complete = starts()
    measured(sink)
    assert complete == [None, False, False]
    assert sink.read()["complete"]


@pytest.mark.parametrize("when", ["early", "late", "at_end"])
def test_an_interrupted_run_is_not_complete(
    when: str, sink: NotedSink, starts: Callable[..., Any]
) -> None:
    starts(**{when: {"eth1": KeyboardInterrupt}})
    with pytest.raises(KeyboardInterrupt):
        measured(sink)
    assert not sink.read()["complete"]
    assert sink.read()["errors"] == [INTERRUPTED]


def test_each_nic_has_the_variables_that_selected_it(
    sink: NotedSink, starts: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "eth7")
    starts()
    result = measured(sink)
    assert [rail.variables["UCX_NET_DEVICES"] for rail in result.rails] == ["all", "eth0", "eth1"]
    assert result.environment == {"UCX_TLS": "tcp"}
    assert sink.notes == ["note: UCX_NET_DEVICES=eth7 is set, but --rail selects the NICs"]


def test_a_single_nic_is_started_once(sink: NotedSink, starts: Callable[..., Any]) -> None:
    complete = starts()
    result = measured(sink, msgspec.structs.replace(JOB, rails=RAILS[:1]))
    assert len(complete) == 1
    assert [rail.name for rail in result.rails] == ["eth0"]
