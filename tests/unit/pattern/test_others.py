"""The Inspector's JSON, clog, SimAI's workload, and the rules that hold for every format."""

import io

import pytest
from pattern_records import calls, record

from busbw.core.errors import UsageError
from busbw.core.pattern_weights import weights
from busbw.pattern.registry import BY_NAME, FORMATS
from busbw.pattern.source import opened

PREFIXES = {
    "nccl": "nccl-log",
    "rccl": "nccl-log",
    "aibooster": "pattern-csv",
    "flight": "flight-recorder",
} | {name: name for name in ("clog", "inspector", "kineto", "simai", "profiler")}


def test_inspector_with_a_header_in_each_line(sample):
    pattern = sample("inspector_v4.0.jsonl")
    rows = {row.function: row for row in pattern.rows}
    assert (rows["all_reduce"].bytes, rows["all_reduce"].gpu_us.total) == (2360832, 5663.0)
    # algbw is stated as 418.439467 GB/s in 41057 us: the message is one rank's part
    assert rows["reduce_scatter"].bytes / rows[
        "reduce_scatter"
    ].gpu_us.total / 1e3 == pytest.approx(418.439467)


def test_inspector_with_one_header_for_a_dump(sample):
    pattern = sample("inspector_v4.3.jsonl")
    assert (pattern.header.dropped, pattern.header.skipped, pattern.header.hosts) == (
        4096,
        0,
        ["example-hostname"],
    )
    rows = {row.function: row for row in pattern.rows}
    assert (rows["reduce_scatter"].algorithm, rows["reduce_scatter"].protocol) == ("Ring", "Simple")
    # this record does not name its clock
    assert rows["all_reduce"].gpu_us is None and rows["all_reduce"].cpu_us.total == 61974


def test_inspector_payload_without_header_is_counted(samples):
    lines = (samples / "inspector_v4.3.jsonl").read_bytes().splitlines(keepends=True)
    pattern = record(lines[1] + lines[0] + lines[2])
    assert (
        pattern.header.skipped == 1
        and pattern.header.notes[0] == "file_0: line 1: a record without its header"
    )


def test_inspector_files_of_ranks_are_joined_by_their_numbers(samples):
    line = (samples / "inspector_v4.0.jsonl").read_bytes().splitlines(keepends=True)[0]
    other = (
        line.replace(b'"rank":1', b'"rank":2')
        .replace(b"worker-0", b"worker-1")
        .replace(b"5663.0", b"6000.0")
    )
    pattern = record(line, other)
    assert [(call.gpu_us, call.skew_us) for call in pattern.calls] == [(5663.0, 337.0)]


def test_clog_counts_replays_of_graphs(sample):
    pattern = sample("clog_v1.log")
    assert [(row.dtype, row.op, row.count, row.calls) for row in pattern.rows] == [
        ("float", "sum", 1024, 5),
        ("bfloat16", "sum", 2048, 4),
    ]
    assert [round(call.cpu_us) for call in pattern.calls[:3]] == [3000, 4000, 3000]
    assert pattern.header.started == "2024-04-27T16:16:07.891+00:00"


def test_clog_of_split_communicators_and_uneven_parts(text):
    pattern = text(
        "V|1|base_timestamp=10.0\n"
        "new_comm|comm=world|rank=1|world_size=4\n"
        "split|parent=world|child=tp|ranks=0,1\n"
        "C1|sig|all_to_all_v_single|in_splits=1,7|out_splits=2,2|dtype=f32|async_op=f|comm=tp\n"
        "C1|Q|work_id=1|+0.1\n"
        "C2|sig|send|in_count=8|out_count=0|dtype=fp8e4m3|peer=3|async_op=f|comm=world\n"
        "C2|Q|work_id=2|+0.2\n"
        "C3|sig|barrier|async_op=f|comm=world\n"
        "C3|Q|work_id=3|+0.3\n"
        "C9|Q|work_id=4|+0.4\n"
    )
    assert [(row.function, row.bytes, row.dtype, row.rank, row.peer) for row in pattern.rows] == [
        ("alltoallv", 32, "float", None, None),
        ("send", 8, "f8e4m3", 1, 3),
    ]
    assert [comm.members for comm in pattern.comms] == [[], [0, 1]] and pattern.header.skipped == 1


def test_ranks_that_are_not_stated_are_members_of_what_they_call(text):
    halves = [
        f"V|1|base_timestamp=10.0\nsplit|parent=world|child=tp|ranks={ranks}\n"
        "C1|sig|all_reduce|in_count=8|out_count=8|dtype=f32|red_op=sum|async_op=f|comm=tp\n"
        "C1|Q|work_id=1|+0.1\n"
        for ranks in ("0,1,2,3", "4,5,6,7")
    ]
    first, second = text(*halves), text(halves[1])
    assert (first.header.ranks, first.header.world, first.header.ranks_known) == ([0, 4], 8, False)
    assert weights(first) == [0.5, 0.5], "one of the two processes makes each call"
    assert (second.header.ranks, weights(second)) == ([4], [1])


def test_simai_goes_forward_and_back(sample):
    pattern = sample("simai_moe.txt")
    sizes = {comm.name: comm.ranks for comm in pattern.comms}
    assert sizes == {"TP": 4, "EP": 4, "DP": 8, "DP_EP": 2}
    assert calls(pattern)[:3] == ["all_reduce", "all_gather", "reduce_scatter"]
    assert (
        calls(pattern)[-1] == "all_gather" and pattern.rows[pattern.calls[-1].row].bytes == 6291456
    )
    assert set(weights(pattern)) == {1}, "every rank makes every call"


@pytest.mark.parametrize(
    ("name", "number"), [("simai_micro.txt", 1), ("simai_of_astra_sim.txt", 3)]
)
def test_other_workloads(sample, name, number):
    assert len(sample(name).calls) == number


def test_every_sample_is_recognized_by_one_format_alone(samples):
    for file in samples.iterdir():
        if file.suffix not in (".md", ".py"):
            kinds = [
                row.name
                for row in FORMATS
                if row.recognizes(opened(file.name, io.BytesIO(file.read_bytes())).head)
            ]
            assert kinds == [
                kind for prefix, kind in PREFIXES.items() if file.name.startswith(prefix)
            ], f"{file.name}: PREFIXES should have one prefix of it, and one reader recognize it"


def test_registry_is_complete():
    assert list(BY_NAME) == [row.name for row in FORMATS]
    assert all(row.title and row.made_by and row.has and row.lacks for row in FORMATS)


def test_files_of_several_formats_are_refused(sample):
    with pytest.raises(
        UsageError, match=r"several formats: clog_v1\.log is clog, simai_micro\.txt is simai"
    ):
        sample("clog_v1.log", "simai_micro.txt")


def test_format_can_be_given(sample):
    with pytest.raises(UsageError, match="no call in it, read as NCCL's log"):
        sample("clog_v1.log", format_name="nccl-log")
    with pytest.raises(UsageError, match="unknown format 'nccl'"):
        sample("clog_v1.log", format_name="nccl")


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b"\x00" * 100, b"{}", b"[]"])
def test_nothing_readable_is_refused(content):
    with pytest.raises(UsageError) as caught:
        record(content)
    assert caught.value.hint


def test_unrecognized_file_among_others_is_named(samples):
    pattern = record(
        b"", (samples / "clog_v1.log").read_bytes(), b"notes\n", names=("empty", "clog", "README")
    )
    assert pattern.header.skipped == 2 and len(pattern.calls) == 9
    assert [note for note in pattern.header.notes if "ranks" not in note] == [
        "empty: empty, or not readable",
        "README: no known format",
    ]
