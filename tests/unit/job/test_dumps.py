"""Flight Recorder dumps of a job that hangs: real ones of ranks over Gloo, of which one does not
call what the others wait in.
"""

import shlex
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest
from ras_service import as_json, comm, rank, service

from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.pattern.pending_calls import outstanding

RANKS = 3
pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),  # which imports PyTorch for all jobs of ranks
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> Path:
    """The folder of the ranks' dumps."""
    folder = tmp_path_factory.mktemp("dumps")
    module = str(Path(__file__).with_name("gloo_rank.py"))
    more = {"TORCH_FR_BUFFER_SIZE": "100", "DUMPS": str(folder)}
    jobs.run(tmp_path_factory.mktemp("job"), module, ["hanging"], RANKS, **more)
    return folder


def test_the_rank_that_did_not_call_is_named(dumps):
    (call,), problems = outstanding([str(dumps)])
    assert (call.function, call.seq, call.waiting, call.absent, call.silent) == (
        "all_reduce",
        4,
        [0, 1],
        {2: "all_reduce number 3"},
        [],
    )
    assert call.since_ns > 0 and problems == []


def test_a_rank_without_a_dump_is_named(dumps):
    (call,), _ = outstanding([str(dumps / "dump_rank_0.pickle"), str(dumps / "dump_rank_1.pickle")])
    assert (call.waiting, call.absent, call.silent) == ([0, 1], {}, [2])


def test_a_job_that_waits_for_nothing_has_no_outstanding_call(dumps):
    assert outstanding([str(dumps / "dump_rank_2.pickle")]) == ([], [])


def test_a_cut_dump_is_a_problem_and_the_others_are_read(dumps, tmp_path):
    for file in dumps.iterdir():
        data = file.read_bytes()
        (tmp_path / file.name).write_bytes(
            data[: len(data) // 2] if "rank_0" in file.name else data
        )
    (call,), problems = outstanding([str(tmp_path)])
    assert 1 in call.waiting and 2 in call.absent
    assert any("dump_rank_0.pickle" in text for text in problems)


def test_no_such_folder_is_a_usage_error():
    with pytest.raises(UsageError):
        outstanding(["/nowhere/at/all"])


@pytest.mark.usefixtures("ranks_are_forks")
def test_dumps_alone_name_the_rank_and_since_when(dumps, capsys):
    code = guarded(
        [
            *shlex.split("check job --wide --ras 127.0.0.1:9 --interval 0.2 --flight-recorder"),
            str(dumps),
        ]
    )
    out = capsys.readouterr().out
    assert code == 1
    assert out.startswith(
        "FAIL    rank 2 has not called all_reduce number 4 of group 0 (last: all_reduce number 3);"
        " since 20"
    )


@pytest.mark.usefixtures("ranks_are_forks")
def test_dumps_name_the_rank_where_all_counts_are_equal(dumps, capsys):
    """The rank is in Python code between two collectives: NCCL knows its process, host and GPU,
    the dumps what it did not call.
    """
    with service(as_json(comm(0xF, [rank(number, 3) for number in range(RANKS)]))) as ras:
        code = guarded(
            [
                "check",
                "job",
                "--wide",
                "--ras",
                ras,
                "--interval",
                "0.2",
                "--flight-recorder",
                str(dumps),
            ]
        )
    assert code == 1
    assert capsys.readouterr().out.startswith(
        "FAIL    rank 2 (pid 4002, 127.0.0.1, GPU 2) has not called all_reduce number 4 of group 0"
    )
