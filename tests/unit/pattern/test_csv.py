"""AIBooster's pattern.csv goes in and comes out byte for byte."""

from hypothesis import given
from hypothesis import strategies as st
from pattern_records import record

from busbw.core.collectives import COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, Header
from busbw.pattern import csv
from busbw.pattern.collector import Arguments, CallTally

HEAD = ",".join(csv.TITLES)


def test_published_sample_comes_out_as_it_went_in(samples):
    data = (samples / "aibooster_pattern.csv").read_bytes()
    assert csv.pattern_csv(record(data)).encode() == data


def test_bytes_of_the_published_sample_follow_from_its_counts(sample):
    from busbw.core.pattern import algbw_bytes

    pattern = sample("aibooster_pattern.csv")
    assert all(
        row.bytes == algbw_bytes(row.function, row.count, row.dtype, 8) for row in pattern.rows
    )


lines = st.tuples(
    st.sampled_from([row.torch_name for row in COLLECTIVES]),
    st.integers(0, 1 << 40) | st.just("?"),
    st.sampled_from([row.torch for row in DTYPES]) | st.just("?"),
    st.integers(1, 4096),
    st.sampled_from(ALGORITHMS) | st.just("?"),
    st.sampled_from(PROTOCOLS) | st.just("?"),
    st.integers(0, 1 << 50),
)
times = st.just("?") | st.floats(0, 1e9).map(repr)


@given(
    st.dictionaries(lines, st.tuples(times, st.integers(1, 10**6)), min_size=1, max_size=20),
    st.booleans(),
)
def test_every_file_comes_out_as_it_went_in(rows, calls):
    head = f"{HEAD},calls" if calls else HEAD
    body = [
        ",".join(map(str, (*name, time, *([number] if calls else []))))
        for name, (time, number) in rows.items()
    ]
    text = "\n".join([head, *body]) + "\n"
    assert csv.pattern_csv(record(text.encode()), calls=calls) == text


def test_equal_calls_of_several_communicators_are_one_line():
    tally = CallTally(Header(), ordered=False)
    for _ in range(2):
        tally.add_calls(Arguments(tally.add_comm(2), "all_reduce", 64, 16, "float"), 3)
    tally.add_calls(Arguments(0, "send", 64, 16, "float", rank=0, peer=1), 5)
    pattern = tally.to_pattern()
    assert (
        csv.pattern_csv(pattern, calls=True) == f"{HEAD},calls\nallreduce,16,float32,2,?,?,64,?,6\n"
    )
    assert csv.left_out(pattern) == 1


def test_bad_lines_are_counted_and_named():
    bad = [
        "allreduce,1,float32,8,Ring,LL,4",
        "teleport,1,float32,8,Ring,LL,4,1.0",
        "allreduce,1,float3,8,Ring,LL,4,1.0",
        "allreduce,1,float32,8,Rung,LL,4,1.0",
        "allreduce,1,float32,8,Ring,LL,-4,1.0",
    ]
    pattern = record("\n".join([HEAD, "allreduce,1,float32,8,Ring,LL,4,15.00005", *bad]).encode())
    assert (pattern.header.skipped, len(pattern.rows)) == (len(bad), 1)
    assert pattern.header.notes[0].startswith("file_0: line 3: ")


def test_csv_has_each_kind_of_time_in_its_own_columns():
    tally = CallTally(Header(), ordered=True)
    tally.add_calls(
        Arguments(tally.add_comm(2, "tp"), "all_reduce", 64),
        cpu_us=5.0,
        gpu_us=3.0,
        predicted_us=2.0,
    )
    head, row = csv.table_csv(tally.to_pattern()).splitlines()
    values = dict(zip(head.split(","), row.split(","), strict=True))
    assert (values["predicted_us"], values["cpu_total_us"], values["gpu_total_us"]) == (
        "2.0",
        "5.0",
        "3.0",
    )
    assert (values["comm_name"], values["ranks"], values["gpu_n"], values["dtype"]) == (
        "tp",
        "2",
        "1",
        "",
    )
