"""No file, however broken, raises anything but UsageError."""

import re
from pathlib import Path

import pytest
from chakra_messages import node, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_records import record

from busbw.core.errors import UsageError
from busbw.pattern import csv, pattern_lines
from busbw.pattern.registry import BY_NAME
from busbw.pattern.text import table

FOLDER = Path(__file__).parents[2] / "recorded" / "patterns"
SAMPLES = {
    file.name: file.read_bytes()
    for file in sorted(FOLDER.iterdir())
    # the second rank of a job wrote what the first did
    if file.suffix not in (".md", ".py") and "rank_1." not in file.name
} | {
    "made.0.et": stream(
        *(
            node(number, 7, comm_type=number % 10, comm_size=64, ranks=[0, 1], pg_name="p")
            for number in range(1, 12)
        )
    )
}
SAMPLES["trace.0.json"] = (
    b'{"version": "0.0.4", "attr": []}{"id": "3", "name": "x", "type": "COMM_COLL_NODE", "attr":'
    b' [{"name": "comm_type", "int64Val": "2"},{"name": "comm_size", "int64Val": "1024"}, {"name":'
    b' "ranks", "int64List": {"values": ["0", "1"]}}]}'
)
SAMPLES["graph.0.json"] = (
    b'{"workload_graph": [{"Id": 1, "Name": "c", "NodeType": 7, "runtime": 28, "comm_type": 0,'
    b' "comm_size": 64}]}'
)
SAMPLES["et.json"] = (
    b'{"schema": "1.1.0-chakra.0.0.4", "pid": 7, "nodes": [{"id": 5, "name": "record_param_comms",'
    b' "inputs": {"values": [[[1, 2, 0, 64, 4, "cuda:0"]], 33, ["0", "default_pg"], 1, "allreduce",'
    b' [], [], 0, 1, 2], "types": ["Tensor(float)"]}, "outputs": {"values": []}}]}'
)
SAMPLES["inspector.json"] = (
    b"[\n" + b",\n".join(SAMPLES["inspector_v4.0.jsonl"].splitlines()) + b"\n]\n"
)
SAMPLES["record.jsonl"] = b"".join(pattern_lines.lines(record(SAMPLES["clog_v1.log"])))


def survives(data: bytes, **options: object) -> None:
    try:
        pattern = record(data, names=("broken.1",), **options)
    except UsageError as error:
        assert error.hint or error.message
    else:
        lines = list(pattern_lines.lines(pattern))
        reread = pattern_lines.read(lines, "written")
        assert reread == pattern
        assert csv.pattern_csv(pattern) and csv.table_csv(pattern) and table(pattern)
        assert (pattern.rows or pattern.header.schema) and all(
            row.calls >= 0 and row.bytes >= 0 for row in pattern.rows
        )


@pytest.mark.parametrize("name", SAMPLES)
def test_every_cut_is_survived(name):
    data = SAMPLES[name]
    for at in range(0, len(data), max(1, len(data) // 12)):
        survives(data[:at])


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=10)
@given(data=st.data())
def test_garbage_in_the_middle_is_survived(name, data):
    sample = SAMPLES[name]
    at = data.draw(st.integers(0, len(sample)))
    garbage = data.draw(st.binary(max_size=12))
    survives(sample[:at] + garbage + sample[at + data.draw(st.integers(0, 12)) :])


def test_a_word_of_an_operator_that_is_not_utf_8_is_survived():
    sample = SAMPLES["kineto_vllm_prefill_rank_0.json"]
    word = sample.index(b'"Input type": ["') + len(b'"Input type": ["')
    survives(sample[:word] + b"\x80" + sample[word:])


VALUE = re.compile(rb'(?<=[:,\[{])\s*("[^"\\]*"|[-+.\w]+)')
PLACES = {
    name: [match.span(1) for match in VALUE.finditer(sample)]
    for name, sample in SAMPLES.items()
    if name.endswith((".json", ".jsonl"))
}
OTHERS = st.sampled_from(
    [b"null", b"-1", b"0", b"true", b"1.5", b"1e300", b'""', b'"x"', b"[]", b"[[1]]", b"{}"]
) | st.integers(-(1 << 70), 1 << 70).map(lambda number: b"%d" % number)


@pytest.mark.parametrize("name", PLACES)
@settings(max_examples=15)
@given(data=st.data())
def test_other_values_are_survived(name, data):
    """Of names too: then a field is missing."""
    sample = SAMPLES[name]
    places = data.draw(st.lists(st.sampled_from(PLACES[name]), min_size=1, max_size=4, unique=True))
    for first, end in sorted(places, reverse=True):
        sample = sample[:first] + data.draw(OTHERS) + sample[end:]
    survives(sample)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=15)
@given(data=st.binary(max_size=200))
def test_garbage_is_survived_by_every_reader(name, data):
    survives(data, format_name=name)


@pytest.mark.parametrize("name", BY_NAME)
def test_files_of_other_formats_are_survived_by_every_reader(name):
    for data in SAMPLES.values():
        # the recorded captures are large: some readers take seconds for each
        if len(data) < 30_000:
            survives(data, format_name=name)


NINES = b"9" * 5000
HUGE = NINES[:400]  # which Python reads, and cannot make a float of
ROW = (
    b'{"type":"header","schema":"busbw.pattern/1"}\n{"type":"comm","id":0,"ranks":2}\n'
    b'{"type":"row","id":0,"comm":0,"function":"all_reduce","bytes":8,"calls":1%b}\n'
)
EXTREMES = {
    "nccl-log": [
        b"h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count "
        + NINES
        + b" datatype 7 op 0 root 0 comm 0x1 [nranks=2]\n",
        b"h:1:1 [0] NCCL INFO 8 Bytes -> Algo " + NINES + b" proto 0 time 1.0\n",
    ],
    "kineto": [
        b'{"traceEvents":' + b"[" * 100_000,
        b'{"baseTimeNanoseconds":' + HUGE + b',"traceEvents":[{"name":"record_param_comms"}]}',
        b'{"traceEvents":[{"name":"record_param_comms","args":' + b'{"a":' * 100_000,
        (
            b'{"traceEvents":[{"name":"record_param_comms","ts":NaN,"args":{"External'
            b' id":1,"Collective name":"allreduce","In msg nelems":1e400,"Out msg nelems":1}}]}'
        ),
    ],
    "execution-trace": [
        b'{"schema":"1.0.1","nodes":' + b"[" * 100_000,
        b'{"schema":"1.0.1","nodes":[{"name":"record_param_comms","inputs":[[1,2,0,'
        + NINES[:30]
        + b',4,"c"],1,2,0,"allreduce",[],[],0,1,'
        + NINES[:30]
        + b"]}]}",
    ],
    "chakra-json": [
        b'{"workload_graph":' + b"[" * 100_000,
        b'{"id":"1","type":"COMM_COLL_NODE","attr":' + b"[" * 100_000,
    ],
    "flight-recorder": [
        b'{"entries":[{"profiling_name":"nccl:all_reduce","input_sizes":[[' + NINES + b"]]}]}",
        b'{"entries":' * 100_000,
    ],
    "inspector": [
        b'{"header":' * 100_000,
        SAMPLES["inspector_v4.0.jsonl"].replace(b'"coll_start_ts":', b'"coll_start_ts":' + HUGE),
    ],
    "clog": [
        b"V|1|base_timestamp=nan\nC1|sig|all_reduce|in_count="
        + b"9" * 30
        + b"|out_count=1|dtype=f32|comm=w\nC1|Q|+inf\n"
    ],
    "simai": [
        b"HYBRID_X model_parallel_NPU_group: "
        + NINES
        + b"\n"
        + NINES
        + b"\na 1 1 ALLREDUCE "
        + NINES
        + b" 1 NONE 0 1 NONE 0 1\n"
    ],
    "pattern-csv": [
        (",".join(csv.TITLES)).encode()
        + b"\nallreduce,1,float32,8,Ring,LL,99999999999999999999,nan\n"
    ],
    "record": [
        b'{"type":' * 100_000,
        b'{"type":"header","schema":"busbw.pattern/1"}\n' + b'{"type":' * 100_000,
        ROW % b',"gpu_us":{"n":0,"total":1,"least":1,"median":1,"most":1}',
        ROW % b',"bytes":' + HUGE,
    ],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_figures_without_end_and_deep_nesting_are_survived(name):
    for data in EXTREMES[name]:
        survives(data, format_name=name)
