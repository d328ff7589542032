"""Dumps of the Flight Recorder: real ones of Gloo, NCCL's entries, and pickles that are not to
be trusted.
"""

import json
import os
import pickle

import pytest
from pattern_records import record

from busbw.core.errors import UsageError
from busbw.core.pattern import Comm, Header, Pattern, PatternRow
from busbw.core.pattern_weights import coverage
from busbw.pattern.pending_calls import outstanding

RANKS = [f"flight_recorder_2.10_gloo_rank_{rank}" for rank in range(2)]
# What job.py of the recording called, in its order; the first five are DDP's own.
FUNCTIONS = [
    "all_gather",
    "broadcast",
    "broadcast",
    "all_reduce",
    "broadcast",
    "broadcast",
    "all_reduce",
    "all_reduce",
    "broadcast",
    "all_gather",
    "all_gather",
    "all_reduce",
    "alltoall",
    "alltoallv",
    "reduce",
    "gather",
    "all_reduce",
]


def entry(number, name, size=4, created=1000, pg="0", seq=None, **fields):
    return {
        "record_id": number,
        "process_group": (pg, "default_pg"),
        "collective_seq_id": number + 1 if seq is None else seq,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "time_created_ns": 1_700_000_000_000_000_000 + created * 1000,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        **fields,
    }


def dump(*entries, **fields):
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": list(entries),
        **fields,
    }


def dumps(*entries):
    return record(
        *(pickle.dumps(entry, 2) for entry in entries),
        names=tuple(f"dump_rank_{rank}" for rank in range(len(entries))),
    )


@pytest.mark.parametrize("suffix", [".pickle", ".json"])
def test_recorded_dumps_of_gloo(sample, suffix):
    pattern = sample(*(name + suffix for name in RANKS))
    assert [pattern.rows[call.row].function for call in pattern.calls] == FUNCTIONS
    assert (pattern.header.ranks, pattern.header.world, pattern.header.skipped) == ([0, 1], 2, 0)
    assert pattern.header.started.startswith("2026-11-25T")
    by_size = {(row.function, row.bytes): row for row in pattern.rows}
    assert by_size["all_reduce", 76840].calls == 3
    assert (by_size["all_gather", 4000].count, by_size["all_gather", 4000].dtype) == (
        1000,
        "bfloat16",
    )
    assert by_size["alltoallv", 28].count is None  # 4 + 3 floats and 6 + 7: the largest of any rank


def test_all_reduces_that_gloo_makes_of_reduce_scatters_are_noted(sample):
    def noted(*rows: PatternRow, **header: str) -> list[str]:
        comms = [Comm(0, 2, members=[0, 1])]
        whole = {"ranks": [0, 1], "world": 2, "source": "flight-recorder"} | header
        return coverage(Pattern(header=Header(**whole), comms=comms, rows=list(rows)))

    def row(function: str, count: int, calls: int) -> PatternRow:
        return PatternRow(0, 0, function, 4 * count, calls, count=count, dtype="float")

    gathers, sums = row("all_gather", 500, 48), row("all_reduce", 1000, 24)
    (note,) = noted(gathers, sums, row("all_reduce", 1, 6))
    assert note.startswith("24 all_reduces of as many elements as an all_gather may be")
    assert noted(gathers, sums, nccl="2.28.9") == []
    assert noted(gathers, sums, source="nccl-log") == []
    assert noted(gathers, sums, row("reduce_scatter", 500, 24)) == []
    assert noted(gathers, row("all_reduce", 900, 24)) == []
    assert noted(sums) == []


def test_published_entry_of_version_2_5(sample):
    pattern = sample("flight_recorder_2.5_nccl_rank_0.json")
    assert (pattern.rows[0].function, pattern.rows[0].bytes, pattern.comms[0].members) == (
        "all_reduce",
        48,
        [0, 1],
    )
    assert (
        coverage(pattern)[0]
        == "1 of 2 ranks was read, rank 0: shares and totals are those of this rank"
    )


@pytest.mark.parametrize(("groups", "world"), [(["0"], 2), (["0", "1"], 1)])
def test_gloo_lists_the_group_that_it_made_last_under_no_name(groups, world):
    """Of a job with several groups it is unknown which that is."""
    config = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    status = {group: {"last_enqueued_collective": 1} for group in groups}
    pattern = dumps(dump(entry(0, "gloo:all_reduce"), pg_config=config, pg_status=status))
    assert (pattern.header.ranks, pattern.header.world) == ([0], world)


@pytest.mark.parametrize("backend", ["nccl", "ncclx", "nccl2", "nccl-lazy", "xccl"])
def test_durations_are_those_of_the_backends_device(backend):
    pattern = dumps(
        dump(entry(0, f"{backend}:all_reduce", duration_ms=0.5)),
        dump(entry(0, f"{backend}:all_reduce", duration_ms=0.75)),
    )
    assert (pattern.rows[0].gpu_us.total, pattern.rows[0].cpu_us, pattern.calls[0].skew_us) == (
        500.0,
        None,
        250.0,
    )


def test_point_to_point_in_a_group():
    pattern = dumps(
        dump(
            entry(0, "nccl:send 0->1", seq=0, p2p_seq_id=1, is_p2p=True),
            entry(1, "nccl:recv 0<-1", seq=0, p2p_seq_id=1, is_p2p=True),
            entry(2, "nccl:coalesced", seq=0, p2p_seq_id=1),
            entry(3, "nccl:barrier"),
        )
    )
    assert [(row.function, row.rank, row.peer, row.count) for row in pattern.rows] == [
        ("send", 0, 1, 4),
        ("recv", 0, 1, 4),
    ]
    assert [call.group for call in pattern.calls] == [0, 0]
    assert pattern.header.skipped == 0 and "barrier, 1 call" in " ".join(pattern.header.notes)


def test_lost_beginning_and_unfinished_calls_are_stated():
    pattern = dumps(
        dump(
            entry(7, "nccl:all_reduce"), entry(8, "nccl:all_reduce", state="started", retired=False)
        )
    )
    assert pattern.header.dropped == 7
    assert "TORCH_FR_BUFFER_SIZE" in " ".join(pattern.header.notes) and "had not ended" in " ".join(
        pattern.header.notes
    )


def test_a_dump_of_open_calls_alone_has_lost_none():
    """PyTorch can leave out the calls that have ended; its ring buffer was not full then."""
    waits = {"state": "scheduled", "retired": False}
    notes = dumps(
        dump(entry(70, "nccl:all_reduce", **waits), entry(90, "nccl:all_reduce", **waits))
    ).header.notes
    assert "calls that had ended are not in dumps that list only open calls" in notes
    assert not any("TORCH_FR_BUFFER_SIZE" in note for note in notes)


def test_clock_that_goes_back_is_stated():
    pattern = dumps(
        dump(entry(0, "nccl:all_reduce", created=9000), entry(1, "nccl:all_reduce", created=1000))
    )
    assert "the clock went back" in " ".join(pattern.header.notes)


def test_unknown_functions_and_entries_are_counted_and_named():
    pattern = dumps(dump(entry(0, "nccl:all_reduce"), entry(1, "nccl:teleport"), {"nothing": 1}, 7))
    assert pattern.header.skipped == 3
    assert "dump_rank_0: entry 1: ValueError: unknown function teleport" in pattern.header.notes


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/busbw-evil",)


def test_a_damaged_dump_of_a_job_that_hangs_leaves_what_can_be_read(tmp_path):
    waiting = entry(1, "nccl:all_reduce", pg="group7", state="scheduled", retired=False)
    waiting["process_group"] = "group7"
    nameless = {key: value for key, value in waiting.items() if key != "profiling_name"}
    late = [waiting | {"time_created_ns": time} for time in ("soon", -1, 10**25)]
    (tmp_path / "dump_rank_0.json").write_text(
        json.dumps(dump(waiting, nameless, *late, 7, pg_config=[1, 2]))
    )
    config = {"group7": {"ranks": f"[0, 1, {'9' * 5000}]"}}
    (tmp_path / "dump_rank_1.json").write_text(json.dumps(dump(pg_config=config)))
    (call,), problems = outstanding([str(tmp_path)])
    assert (call.group, call.function, call.waiting) == ("group7", "all_reduce", [0])
    assert (call.since_ns, call.absent) == (waiting["time_created_ns"], {1: "none"})
    assert len(problems) == 5 and all("_0.json: entry " in text for text in problems)


def test_pickle_that_names_code_is_not_run(tmp_path):
    with pytest.raises(UsageError, match="which is not loaded"):
        dumps(dump(Evil()))
    assert not os.path.exists("/tmp/busbw-evil")  # noqa: PTH110


def _shared(levels, width, kind=list):
    """A value of few bytes whose references stand for `width` to the power of `levels` values."""
    value = kind(["nccl:all_reduce"])
    for _ in range(levels):
        value = kind([value] * width)
    return value


def _opcodes(levels):
    """A pickle of tuples in tuples as the key of a dictionary, whose hash takes 2 to the power
    of `levels` steps.
    """
    return b"\x80\x04X\x07\x00\x00\x00version}K\x01\x85" + b"2\x86" * levels + b"K\x01s."


LOOPED: list = []
LOOPED.append(LOOPED)
HOSTILE = {
    "list in a name": pickle.dumps({"version": "2.10", "entries": [entry(0, _shared(40, 2))]}, 4),
    "tuple in a name": pickle.dumps(
        {"version": "2.10", "entries": [entry(0, _shared(40, 2, tuple))]}, 4
    ),
    "wide entries": pickle.dumps({"version": "2.10", "entries": _shared(8, 400)}, 4),
    "wide, and cut": pickle.dumps(
        {"version": "2.10", "entries": _shared(8, 400), "profiling_name": 1}, 4
    )[:-2],
    "a key of tuples": _opcodes(60),
    "a long text, often": pickle.dumps(
        {"version": "2.10", "entries": ["x" * 100_000] * 100_000}, 4
    ),
    "an array of 100 GB": (
        b"\x80\x05X\x07\x00\x00\x00version\x96" + (100 << 30).to_bytes(8, "little") + b"."
    ),
    "a list in itself": pickle.dumps({"version": "2.10", "entries": [entry(0, LOOPED)]}, 4),
    "a large integer": pickle.dumps(
        {"version": "2.10", "entries": [entry(1 << 8_000_000, "nccl:all_reduce")]}, 4
    ),
    "deep": pickle.dumps({"version": "2.10", "entries": [entry(0, _shared(200, 1))]}, 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_pickle_that_would_take_for_ever_is_refused(name):
    with pytest.raises(UsageError):
        record(HOSTILE[name], names=("dump_rank_0",))


def test_stack_traces_that_calls_share_are_read():
    frames = [{"name": "forward", "filename": "model.py", "line": number} for number in range(200)]
    pattern = dumps(
        dump(*(entry(number, "nccl:all_reduce", frames=frames) for number in range(2000)))
    )
    assert sum(row.calls for row in pattern.rows) == 2000


def test_cut_pickle_keeps_its_complete_entries(samples):
    pickled = (samples / f"{RANKS[0]}.pickle").read_bytes()
    pattern = record(pickled[: len(pickled) * 2 // 3], names=("rank_0",))
    assert 5 < sum(row.calls for row in pattern.rows) < len(FUNCTIONS)
    assert pattern.header.skipped == 1


def test_cut_json_keeps_its_complete_entries(samples):
    text = json.dumps(json.loads((samples / f"{RANKS[0]}.json").read_text())).encode()
    pattern = record(text[: text.index(b'"record_id": 9')], names=("rank_0",))
    assert sum(row.calls for row in pattern.rows) == 9
