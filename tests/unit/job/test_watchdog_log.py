"""The lines of PyTorch's watchdog, of several releases, say whom a collective waited for."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.main import guarded
from busbw.job.watchdog_log import report

NUMEL = ", NumelIn=1024, NumelOut=1024"


def caught(
    rank: int, number: int = 7, call: str = "ALLREDUCE", numel: str = NUMEL, own: int | None = None
) -> str:
    """A rank gives up a call."""
    own = rank if own is None else own
    return (
        f"[rank{rank}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {own}] Watchdog"
        f" caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={call}{numel},"
        " Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
    )


def status(
    rank: int, called: int, group: str = "PG ID 0 PG GUID 0(default_pg)", at: int = 7
) -> str:
    """How far a rank had come."""
    return (
        f"[rank{rank}]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:1785] [{group} Rank {rank}] Exception"
        f" (either an error or timeout) detected by watchdog at work: {at}, last enqueued NCCL"
        f" work: {called}, last completed NCCL work: {min(called, at) - 1}.\n"
    )


def message(log: str) -> str:
    """The conclusion."""
    found = report(log)
    assert found is not None
    return found.message


WAITED = "ALLREDUCE of 1024 elements, number 7 of group 0(default_pg), in which ranks 0-2"


def test_a_rank_that_has_called_less_is_late() -> None:
    log = "".join(caught(rank) + status(rank, 9) for rank in range(3)) + status(3, 6, at=6)
    late = f"rank 3 had not called {WAITED} waited for 10 min (last: number 6)"
    assert message(log) == late
    assert message(log.replace("OpType", "\nOpType")) == late, "a terminal broke the lines"


@pytest.mark.parametrize("width", [60, 72, 80, 120])
@pytest.mark.parametrize("quote", ["", "> "])
def test_lines_that_a_mail_client_wrapped(width: int, quote: str, tmp_path, capfd) -> None:
    """Ranks of a smaller group: without the label before it, `Rank 1` would be taken for rank 13."""
    ranks = {8: 0, 13: 1, 20: 2}
    log = "".join(caught(rank, own=own) + status(rank, 9) for rank, own in ranks.items())
    log = log.replace("[rank", "2025-02-18 12:54 [rank") + status(27, 6, at=6)
    lines = [part for line in log.splitlines() for part in textwrap.wrap(line, width)]
    (tmp_path / "log").write_text("\n".join(quote + line for line in lines))
    assert guarded(["show", "--wide", str(tmp_path / "log")]) == 1
    late = "FAIL    rank 27 had not called ALLREDUCE of 1024 elements, number 7 of group"
    shown = capfd.readouterr().out
    assert shown.startswith(late) and "in which ranks 8,13,20 waited for 10 min" in shown


def test_a_rank_that_waits_in_an_earlier_call_is_late() -> None:
    log = "".join(caught(rank) + status(rank, 9) for rank in range(3))
    log += caught(3, 5, "BROADCAST") + status(3, 5, at=5)
    assert message(log).startswith(f"rank 3 had not called {WAITED}")
    assert message(log).endswith("(last: number 5, in which it waited too)")


def test_a_number_that_pytorch_did_not_set_is_unknown() -> None:
    log = caught(0) + status(0, 7).replace(
        "completed NCCL work: 6", "completed NCCL work: 94904856"
    )
    found = report(log)
    assert found is not None and found.evidence[0].endswith("called up to 7, completed unknown")


def test_ranks_that_write_nothing_are_named_in_their_group() -> None:
    log = "".join(caught(rank) + status(rank, 9) for rank in (0, 1, 3))
    assert message(log).startswith("rank 2 of the group wrote nothing to this log of ALLREDUCE")
    assert message(log + status(2, 9)).startswith("no rank of this log is late"), "it gave up too"
    pair = "".join(caught(rank, own=own) for rank, own in ((8, 0), (12, 1)))
    assert message(pair).startswith("no rank of this log is late in ALLREDUCE")


def test_different_calls_under_one_number_are_named() -> None:
    log = "".join(caught(rank) for rank in range(3)) + caught(3, 7, "BROADCAST")
    assert message(log) == (
        "ranks made different calls as number 7: ranks 0-2: ALLREDUCE of 1024 elements;"
        " rank 3: BROADCAST of 1024 elements"
    )
    uneven = caught(0, 7, "ALLTOALL_BASE") + caught(
        1, 7, "ALLTOALL_BASE", NUMEL.replace("1024", "2")
    )
    assert message(uneven).startswith("no rank of this log is late")


def test_logs_without_groups_and_sizes() -> None:
    old = "[E ProcessGroupNCCL.cpp:458] "
    log = "".join(
        f"{old}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number},"
        " OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802710 milliseconds before timing out.\n"
        for rank, number in ((0, 96117), (1, 96117), (7, 64088))
    )
    assert message(log) == (
        "ranks waited in different calls: ranks 0-1: ALLREDUCE, number 96117; rank 7: ALLREDUCE,"
        " number 64088"
    )


def test_newest_form_and_a_rank_without_its_group() -> None:
    newest = (
        "[rank1]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 1 Rank 1]  failure"
        " detected by watchdog at work sequence id: 7 PG status: last enqueued work: 547, last"
        " completed work: -1\n"
    )
    found = report(caught(0) + caught(1) + newest)
    assert found is not None
    assert found.message.startswith("no rank of this log is late in ALLREDUCE of 1024 elements")
    assert found.evidence == [
        "rank 0: ALLREDUCE of 1024 elements, number 7 of group 1",
        "rank 1: ALLREDUCE of 1024 elements, number 7 of group 1; called up to 547, completed none",
    ]


def test_a_group_of_calls_has_no_size() -> None:
    """PyTorch prints -1 without its sign."""
    none = ", NumelIn=18446744073709551615, NumelOut=18446744073709551615"
    log = "".join(caught(rank, 2, "COALESCED", none) for rank in (0, 1))
    assert message(log) == (
        "no rank of this log is late in COALESCED, number 2, in which ranks 0-1 waited for 10 min"
    )
    assert report(log.replace("WorkNCCL", "WorkXCCL").replace("PGNCCL", "PGXCCL")) is not None


def test_the_report_of_desync_debug_counts_before_the_lines_of_the_ranks() -> None:
    desync = """[rank0]:[E515 18:36:47.343377708 ProcessGroupNCCL.cpp:1937] Rank 0
         - [0] Timeout at collective: ALLREDUCE, #315
         - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
             [7] finished collective #182, but didn't join collective #183 (count from 1)
         - Snapshot of ranks' latest states:
           #182 finished ranks:
             [7] finished ALLREDUCE
"""
    assert message(caught(0) + desync + desync + status(0, 315)) == (
        "PyTorch reports ranks out of step: rank 7 finished collective #182, but didn't join"
        " collective #183"
    )
    never = " - To our best knowledge, ranks [4, 5] are the lagging ranks that caused this timeout."
    assert message(caught(0) + never).endswith("ranks 4-5 never joined any collective")


def told(rank: int, by: str) -> str:
    """A rank hears that a call was given up."""
    return (
        f"[rank{rank}]:[E804 23:05:54.817424543 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID"
        f" 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from {by}"
        " and we will try our best to dump the debug info. Last enqueued NCCL work: 1261, last"
        " completed NCCL work: 1259.This is most likely caused by incorrect usages of collectives\n"
    )


def test_a_log_without_the_call_names_the_rank_that_gave_it_up() -> None:
    found = report(told(0, " rank 13") + told(1, " rank 13"))
    assert found is not None
    assert found.message == ("rank 13 gave up a call first; the lines of that are not in this log")
    assert found.evidence == [
        "ranks 0-1: called up to 1261 of group 0(default_pg), completed up to 1259"
    ]
    assert message(told(4, "this local rank")).startswith("rank 4 gave up a call first")
    assert message(told(0, " rank 1") + caught(1) + status(1, 7)).startswith("rank 0 of the group")


@given(st.text(alphabet="0123456789[]():=,-PGRankwork \n"))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert report(text + caught(0) + text) is not None
    assert report(text) is None


def test_show_prints_the_conclusion(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.log"
    file.write_text("epoch 1\n" + caught(0) + status(0, 9) + status(1, 6, at=6))
    assert guarded(["show", str(file)]) == 1
    assert capfd.readouterr().out.startswith("FAIL    rank 1 had not called ALLREDUCE of 1024")


def test_lines_of_nccl_beside_it_hide_nothing(tmp_path, capfd) -> None:
    """Most jobs that are watched have NCCL_DEBUG=INFO, whose lines alone have no call."""
    file = tmp_path / "training.log"
    log = "".join(caught(rank) + status(rank, 9) for rank in range(3)) + status(3, 6, at=6)
    file.write_text(f"h1:80:91 [7] NCCL INFO misc/socket.cc:47 -> 3\n{log}")
    guarded(["show", "--wide", str(file)])
    assert capfd.readouterr().out.startswith("FAIL    rank 3 had not called ALLREDUCE of 1024")
