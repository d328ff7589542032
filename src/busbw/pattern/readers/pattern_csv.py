"""AIBooster's pattern.csv: the distinct calls of a job with NCCL's prediction, and, where it was
asked for, how often each was made.

    routine,num_samples,datatype,nranks,ALGO,PROTOCOL,TOTALBYTES,TIME_FOR_EACH_...
    allgather,24,float32,8,Ring,LL,768,10.804766

`num_samples` is NCCL's count; `?` stands for an unknown value.
"""

import csv

from busbw.core.dtypes import DTYPES
from busbw.core.pattern import nccl_algorithm, nccl_protocol
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.csv import CALLS, TITLES, UNKNOWN
from busbw.pattern.merge import ObservedCall
from busbw.pattern.source import PatternSource

_TYPES = {row.torch: row.name for row in DTYPES}


def recognizes(head: bytes) -> bool:
    """Whether the first line has the titles."""
    return head.lstrip(b"\xef\xbb\xbf").startswith(",".join(TITLES[:3]).encode())


def read(source: PatternSource, collector: Collector) -> None:
    collector.drop_order()
    lines = source.lines(collector)
    _, first = next(lines, (1, b""))
    titles = [title.strip() for title in first.decode("utf-8-sig", "replace").split(",")]
    for number, line in lines:
        text = line.decode(errors="replace").strip()
        try:
            for row in csv.reader([text] if text else []):
                values = [value.strip() for value in row]
                _add(collector, dict(zip(titles, values, strict=True)))
        except (ValueError, KeyError, csv.Error) as error:
            collector.add_problem(f"{source.name}: line {number}: {type(error).__name__}: {error}")
    if CALLS not in titles:
        collector.add_note(
            "pattern.csv lists distinct calls: how often each was made is unknown, and counted as"
            " once"
        )


def _add(collector: Collector, values: dict[str, str]) -> None:
    function = merge.function(values["routine"])
    if function is None:
        raise ValueError(f"unknown routine {values['routine']}")
    count, dtype, ranks, algorithm, protocol, size, time = (
        None if values[title] == UNKNOWN else values[title] for title in TITLES[1:]
    )
    number = int(ranks or 0)
    if int(size or -1) < 0 or number < 0 or int(count or 0) < 0:
        raise ValueError("a negative or missing size")
    collector.add_comm(number, number)
    call = ObservedCall(
        number,
        function,
        int(size or 0),
        None if count is None else int(count),
        None if dtype is None else _TYPES[dtype],
    )
    call.algorithm = algorithm and _known(nccl_algorithm(algorithm), algorithm)
    call.protocol = protocol and _known(nccl_protocol(protocol), protocol)
    call.predicted_us = None if time is None else float(time)
    collector.add_call("every rank", call, int(values.get(CALLS, "1")))


def _known(row: str | None, name: str) -> str:
    if row is None:
        raise ValueError(f"unknown algorithm or protocol {name}")
    return row
