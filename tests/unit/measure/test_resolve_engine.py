"""The engine `auto` is chosen on the hosts of the ranks, with a reason if it is not `nccl`."""

from busbw.core.sweep import SweepSpec
from busbw.engines.registry import choose
from busbw.launch.control import SoloControl
from busbw.measure.events import Event, Note
from busbw.measure.job import SweepJob
from busbw.measure.rank import resolve_engine


def test_process_0_chooses_and_gives_the_reason_against_gpus():
    events: list[Event] = []
    row, note = choose("auto")
    job = resolve_engine(
        SweepJob(sweep=SweepSpec(collective="all_reduce"), engine="auto", ranks=2),
        SoloControl(),
        events.append,
    )
    assert job.engine == row.name
    assert [event.text for event in events if isinstance(event, Note)] == (
        [f"note: {note}"] if note else []
    )


def test_a_named_engine_stays():
    job = SweepJob(sweep=SweepSpec(collective="all_reduce"), engine="torch")
    assert resolve_engine(job, SoloControl(), lambda _: None) is job
