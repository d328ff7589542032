"""Reports of NCCL's RAS: JSON of 2.28.7 and newer, and text of 2.24 and newer."""

from pathlib import Path

import pytest
from ras_service import TEXT_BEHIND, TEXT_DEAD, TEXT_ERROR, TEXT_FINE, as_json, comm, missing, rank

from busbw.job.ras_report import parse


def test_json_has_every_rank_with_its_counts():
    report = parse(as_json(comm(0xC0FFEE, [rank(0, 7), rank(1, 5)])))
    assert (report.nccl, report.complete, report.comms[0].name, report.comms[0].size) == (
        "2.28.9",
        True,
        "0xc0ffee",
        2,
    )
    assert report.comms[0].most["AllReduce"] == 7
    assert [(row.rank, row.pid) for row in report.comms[0].behind()["AllReduce"]] == [(1, 4001)]


@pytest.mark.parametrize("comma", [True, False], ids=["newer", "2.28.9"])
def test_missing_ranks_are_read_with_and_without_a_comma(comma):
    text = as_json(comm(1, [rank(0, 4)], [missing(1, pid=77)]), comma=comma)
    assert text.count(",") - as_json(comm(1, [rank(0, 4)], [missing(1, pid=77)])).count(",") == (
        0 if comma else -1
    )
    parsed = parse(text).comms[0].ranks[1]
    assert (parsed.rank, parsed.pid, parsed.gpu, parsed.problem) == (
        1,
        77,
        1,
        "does not answer NCCL's RAS",
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"unresponsive": True, "dead": True}, "is considered dead by NCCL's RAS"),
        ({"unresponsive": False, "dead": False}, "has left the communicator"),
    ],
)
def test_why_a_rank_is_missing(flags, problem):
    assert (
        parse(as_json(comm(1, [rank(0, 4)], [missing(1, **flags)]))).comms[0].ranks[1].problem
        == problem
    )


def test_errors_are_those_of_ncclresult_but_not_in_progress():
    report = parse(
        as_json(
            comm(
                1, [rank(0, 4, async_error=6), rank(1, 4, async_error=7), rank(2, 4, init_state=2)]
            )
        )
    )
    assert [row.problem for row in report.comms[0].ranks] == [
        "reported: remote error",
        "",
        "reported: system error",
    ]


def test_text_of_a_healthy_job_names_no_rank():
    report = parse(TEXT_FINE)
    assert (report.nccl, report.complete, report.comms) == ("2.27.5", False, [])


def test_text_names_a_dead_rank():
    (parsed,) = parse(TEXT_DEAD).comms
    assert [(row.rank, row.pid, row.host, row.problem) for row in parsed.ranks] == [
        (2, 4002, "127.0.0.1", "is considered dead by NCCL's RAS")
    ]


def test_text_names_a_rank_that_is_behind():
    (parsed,) = parse(TEXT_BEHIND).comms
    (late,) = parsed.behind()["AllReduce"]
    assert (parsed.name, parsed.most, late.rank, late.counts, late.gpu, late.nvml) == (
        "0xc0ffee00000001",
        {"AllReduce": 19},
        1,
        {"AllReduce": 12},
        1,
        5,
    )


def test_text_names_a_rank_that_failed():
    assert parse(TEXT_ERROR).comms[0].ranks[0].problem == "reported: Remote process error"


DEEP = '{"nccl_version": ' + "[" * 100_000
INFINITE = (
    '{"nccl_version": "2.40", "communicators": [{"hash": 1, "size": 1e999, "ranks": [],'
    ' "missing_ranks": []}]}'
)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"nccl_version": "2.40"}', "HTTP/1.1 400\n", TEXT_BEHIND[:500], DEEP, INFINITE],
    ids=range(7),
)
def test_text_that_is_not_a_report_has_no_communicator(text):
    assert parse(text).comms == []


def test_every_cut_of_a_report_is_read_or_left():
    for text in (TEXT_BEHIND, TEXT_DEAD, as_json(comm(1, [rank(0, 4)], [missing(1)]))):
        for end in range(0, len(text), 7):
            parse(text[:end])


# of NCCL 2.28.9 on two H100, one rank stopped by SIGSTOP
RECORDED = Path(__file__).parents[2] / "recorded" / "ras"


def test_recorded_json_names_the_stopped_rank():
    report = parse((RECORDED / "ras_stopped.json").read_text())
    ranks = [(row.rank, row.pid, row.host, row.gpu, row.problem) for row in report.comms[0].ranks]
    assert ranks == [
        (0, 1352, "192.0.2.2", 0, ""),
        (1, 1353, "192.0.2.2", 1, "does not answer NCCL's RAS"),
    ]
    assert report.comms[0].most["AllReduce"] == 158


def test_recorded_json_of_a_job_that_moves_names_no_rank():
    (comm,) = parse((RECORDED / "ras_moves.json").read_text()).comms
    assert [(row.rank, row.problem, row.counts["AllReduce"]) for row in comm.ranks] == [
        (0, "", 61),
        (1, "", 61),
    ]


def test_recorded_text_names_the_stopped_rank():
    assert parse((RECORDED / "ras_moves.txt").read_text()).comms == []
    (comm,) = parse((RECORDED / "ras_stopped.txt").read_text()).comms
    assert [(row.rank, row.pid, row.host, row.gpu) for row in comm.ranks if row.problem] == [
        (1, 1353, "192.0.2.2", 1)
    ]
