"""The diagnosis: certain causes come before likely ones, and every message names ranks, hosts,
phase and a command.
"""

from dataclasses import replace

import msgspec

from busbw.core.rank_messages import Here, Stalled, StalledConnection
from busbw.launch import packet_loss
from busbw.launch.diagnosis import Helper, StallEvidence, absent, conclude, death, death_without_end

HOSTS = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")
HERE = {rank: Here(rank, f"h{rank // 2 + 1}", 100 + rank) for rank in range(4)}


def stalled(
    rank: int, step: int = 9, phase: str = "timing", detail: str = "1M in place", **more: object
) -> Stalled:
    return Stalled(
        rank,
        HERE[rank].host,
        HERE[rank].pid,
        phase,
        detail,
        step,
        60.2,
        ["runner.py:9 _row", "mpi.py:7 run"],
        **more,
    )


def evidence_of(*reports: Stalled, **more: object) -> StallEvidence:
    return StallEvidence(4, HERE, {report.rank: report for report in reports}, hosts=HOSTS, **more)


def test_a_neighbour_on_the_same_host_reports_a_stop() -> None:
    evidence = evidence_of(
        stalled(0, local_processes={103: "T"}), stalled(1), stalled(2, local_processes={103: "T"})
    )
    error = conclude(evidence, 0)
    assert (
        error.message
        == "timing of 1M in place made no progress for 60 s: rank 3 on h2 (pid 103) is stopped"
    )
    assert error.exit == 3
    assert "SIGSTOP" in error.hint
    # pid 103 of another host
    elsewhere = conclude(
        evidence_of(stalled(0, local_processes={103: "T"}), stalled(1), stalled(2)), 0
    )
    assert "is stopped" not in elsewhere.message


def test_a_hosts_own_process_states_outrank_neighbours() -> None:
    evidence = evidence_of(
        stalled(0), stalled(1), stalled(2, local_processes={103: "T"}), states={3: "R"}
    )
    stopped_rank = (
        "rank 3 on h2 (pid 103) did not report although alive: a call blocks them"  # rank 2 reports
    )
    assert stopped_rank in conclude(evidence, 0).message
    assert (
        "rank 3 on h2 (pid 103) is gone" in conclude(replace(evidence, states={3: ""}), 0).message
    )
    assert "ssh 10.0.0.2 dmesg" in conclude(replace(evidence, states={3: "Z"}), 0).hint


def test_both_stopped_ranks_of_a_host_are_named() -> None:
    error = conclude(evidence_of(stalled(0), stalled(1), states={2: "T", 3: "T"}), 0)
    assert error.message.endswith("ranks 2, 3 on h2 are stopped")


def test_a_lost_link_is_named_before_the_ranks_behind_it() -> None:
    error = conclude(
        evidence_of(
            stalled(0, links_down=["eth0"]),
            stalled(1, links_down=["eth0"]),
            states={2: "R", 3: "R"},
        ),
        0,
    )
    assert error.message.endswith(
        "the link of eth0 on h1 went down, and ranks 2, 3 on h2 do not report any more"
    )
    assert error.hint.startswith("ip -brief link; ethtool eth0")
    assert (
        "eth7 on h0 went down"
        in conclude(evidence_of(stalled(0), links_down={"h0": ["eth7"]}), 0).message
    )


def test_a_stopped_process_outranks_a_link() -> None:
    evidence = evidence_of(stalled(0, links_down=["eth0"]), stalled(1), stalled(2), states={3: "T"})
    assert "rank 3 on h2 (pid 103) is stopped" in conclude(evidence, 0).message


def test_a_late_rank_outranks_a_link_if_all_report() -> None:
    evidence = evidence_of(
        stalled(0, links_down=["eth0"]), stalled(1), stalled(2, 8, "verify"), stalled(3)
    )
    message = conclude(evidence, 0).message
    assert "rank 2 on h2 (pid 102) is stuck at an earlier step" in message
    assert message.endswith("; meanwhile the link of eth0 on h1 went down")
    together = conclude(
        evidence_of(stalled(0, links_down=["eth0"]), stalled(1), stalled(2), stalled(3)), 0
    )
    assert together.message.endswith("60 s: the link of eth0 on h1 went down")


def test_the_hint_uses_the_users_name_of_the_host() -> None:
    error = conclude(evidence_of(stalled(0), stalled(1), unreachable=frozenset({"10.0.0.2"})), 0)
    assert "ranks 2, 3 on h2 cannot be reached" in error.message
    assert "ssh -o BatchMode=yes -o ConnectTimeout=5 10.0.0.2 true" in error.hint


def test_the_rank_at_the_smallest_step_is_late() -> None:
    evidence = evidence_of(
        stalled(0), stalled(1), stalled(2, 8, "verify"), stalled(3), gpus={2: "GPU 0"}
    )
    message = conclude(evidence, 0).message
    assert message.startswith(
        "verify of 1M in place made no progress for 60 s: rank 2 on h2 (GPU 0, pid 102) is stuck at"
        " an earlier step"
    )
    assert "(runner.py:9 _row > mpi.py:7 run), the others wait in timing of 1M in place" in message


def test_a_rank_that_still_imports_is_named_and_needs_more_time_to_start() -> None:
    """Its modules come slowly on a busy machine: the network is not at fault."""
    calls = ["<frozen importlib._bootstrap>:241 _call_with_frames_removed"]
    importing = msgspec.structs.replace(stalled(1, 1, "init", "torch"), doing=calls)
    error = conclude(evidence_of(importing, stalled(0, 2, "init", "torch")), 9.0)
    assert "rank 1 on h1 (pid 101) is still importing Python modules" in error.message
    assert "--launch-limit 600" in error.hint
    every = conclude(evidence_of(*(stalled(rank, 2, "init", "torch") for rank in range(4))), 9.0)
    assert "no rank is late" in every.message and "--launch-limit 600" in every.hint


def test_without_a_late_rank_nccls_report_is_quoted() -> None:
    message = conclude(
        evidence_of(
            *(stalled(rank) for rank in range(3)), stalled(3, library="Job summary\n 4 ranks")
        ),
        0,
    ).message
    assert "no rank is late: all 4 wait at the same step" in message
    assert message.endswith("NCCL reports:\nJob summary\n 4 ranks")


def test_silence_of_all_ranks_is_reported() -> None:
    error = conclude(evidence_of(states=dict.fromkeys(range(4), "R")), 123.4)
    assert error.message.startswith(
        "no rank has reported for 123 s: ranks 0, 1 on h1 and ranks 2, 3 on h2"
    )


def test_absent_ranks_are_named_with_any_stopped_rank() -> None:
    some_reported = StallEvidence(
        4, {rank: HERE[rank] for rank in (0, 1)}, {}, hosts=HOSTS, states={0: "T", 1: "S"}
    )
    message = absent(some_reported, 120).message
    assert (
        message
        == "launch: ranks 2, 3 on 10.0.0.2 did not start within 120 s, 2 of 4 did; rank 0 on h1"
        " (pid 100) is stopped"
    )
    assert "10.0.0.2" in absent(some_reported, 120).hint


def test_a_rank_that_died_is_named() -> None:
    assert (
        death(evidence_of(), 3).message == "rank 3 on h2 (pid 103) exited without an error message"
    )


def test_a_rank_that_exited_may_have_lost_one_of_a_host_whose_daemon_is_stopped() -> None:
    helper = Helper("h2", "prted", 77, daemon=True)
    evidence = StallEvidence(4, HERE, {}, {0: "Z", 2: "Z", 3: "S"}, hosts=HOSTS, helpers=[helper])
    assert death_without_end(evidence, 0).message == (
        "prted on h2 (pid 77), which starts and ends the ranks there, is stopped; rank 2 on h2"
        " (pid 102) is dead; rank 0 on h1 (pid 100) exited without an error message"
    )
    alone = StallEvidence(4, HERE, {}, {0: "Z", 2: "S", 3: "S"}, hosts=HOSTS)
    assert death_without_end(alone, 0).message == death(alone, 0).message


def test_long_lists_of_ranks_are_cut() -> None:
    many_ranks = StallEvidence(100, {}, {}, hosts=("h",) * 100)
    assert (
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more on h did not start"
        in absent(many_ranks, 5).message
    )


def test_a_silent_local_rank_is_in_a_blocking_call() -> None:
    here_messages = StallEvidence(
        2, {rank: HERE[rank] for rank in (0, 1)}, {0: stalled(0)}, states={1: "R"}
    )
    error = conclude(here_messages, 0)
    assert error.message.endswith(
        "rank 1 on h1 (pid 101) did not report although alive: a call blocks them"
    )
    assert error.hint.startswith("py-spy dump")


def test_hosts_of_which_no_rank_reports_are_not_accused_before_the_network() -> None:
    error = conclude(evidence_of(stalled(0), stalled(1), states={2: "S", 3: "S"}), 0)
    assert error.message.endswith(
        "the network between h1 and h2 fails, or a call blocks ranks 2, 3 on h2, which did not"
        " report although alive"
    )
    assert "10.0.0.2" in error.hint


def test_a_stopped_daemon_is_the_cause_of_ranks_that_do_not_report() -> None:
    daemon = Helper("h2", "prted", 5, daemon=True)
    listed_evidence = evidence_of(stalled(0), stalled(1), states={2: "S", 3: "S"}, helpers=[daemon])
    assert conclude(listed_evidence, 0).message.endswith(
        "60 s: prted on h2 (pid 5), which starts and ends the ranks there, is stopped"
    )
    assert "at an earlier step" not in conclude(listed_evidence, 0).message
    ended = conclude(
        StallEvidence(4, HERE, {}, dict.fromkeys(range(4), "Z"), hosts=HOSTS, helpers=[daemon]), 12
    )
    assert (
        ended.message
        == "no rank has reported for 12 s: prted on h2 (pid 5), which starts and ends the ranks"
        " there, is stopped"
    )
    conclusion = conclude(StallEvidence(4, HERE, {}, {1: "T"}, hosts=HOSTS, helpers=[daemon]), 12)
    assert conclusion.message.endswith("rank 1 on h1 (pid 101) is stopped")
    at_end = conclude(
        StallEvidence(4, HERE, {}, hosts=HOSTS, helpers=[Helper("h1", "mpirun", 9)]),
        6,
        leaving_s=5.2,
    )
    assert (
        at_end.message
        == "everything was measured, but the job did not end within 5 s and was killed: mpirun on"
        " h1 (pid 9) is stopped"
    )


def test_ranks_that_were_stopped_before_they_reported_are_named_with_host_and_process() -> None:
    three = {rank: HERE[rank] for rank in (0, 1, 3)}
    error = absent(
        StallEvidence(4, three, {}, {2: "T"}, hosts=HOSTS, unreported={2: Here(2, "h2", 77)}), 6
    )
    assert (
        error.message
        == "launch: rank 2 on h2 (pid 77) is stopped: not started within 6 s, 3 of 4 did"
    )
    assert "SIGSTOP" in error.hint
    nobody = absent(StallEvidence(4, {}, {}, hosts=HOSTS, helpers=[Helper("h1", "mpirun", 9)]), 6)
    assert nobody.message.endswith(
        "did not start within 6 s, 0 of 4 did; mpirun on h1 (pid 9) is stopped"
    )


def lossy(
    peer: str, timeouts: int = 0, resent: int = 9, interface: str = "eth1"
) -> StalledConnection:
    return StalledConnection("10.1.0.9", peer, interface, timeouts, resent, 20)


def test_lost_packets_name_both_hosts_and_the_interface() -> None:
    reports = [
        stalled(0, connections=[lossy("10.0.0.2", 2), lossy("10.0.0.2")]),
        *map(stalled, (1, 2, 3)),
    ]
    error = conclude(evidence_of(*reports), 0)
    assert error.message.endswith(
        "60 s: packets are lost between h1 and h2: TCP retransmitted 18 of the last 40 segments on"
        " eth1 of h1, and 2 timeouts in a row without an answer"
    )
    assert "ip -s link show eth1; ethtool -S eth1, on h1 and h2" in error.hint
    silent = conclude(evidence_of(*reports[:2], states={2: "S", 3: "S"}), 0)
    assert silent.message.endswith("and ranks 2, 3 on h2 do not report any more")
    stopped = conclude(evidence_of(*reports[:3], states={3: "T"}), 0)
    assert stopped.message.endswith("rank 3 on h2 (pid 103) is stopped")
    late = conclude(evidence_of(*reports[:3], stalled(3, 8)), 0)
    assert "rank 3 on h2 (pid 103) is stuck at an earlier step" in late.message
    assert "; meanwhile packets are lost between h1 and h2" in late.message


def test_large_packets_that_do_not_arrive_where_small_ones_do_are_named() -> None:
    vanishing = msgspec.structs.replace(lossy("10.0.0.2", 3), vanishing=8948)
    reports = [stalled(0, connections=[lossy("10.0.0.9", 9), vanishing]), *map(stalled, (1, 2, 3))]
    error = conclude(evidence_of(*reports), 0)
    assert error.message.endswith(
        "large packets from h1 do not arrive on h2, small ones do: segments of 8948 bytes had 3"
        " timeouts in a row, as where an MTU on the way is smaller than that of eth1 on h1"
    )
    assert error.hint.startswith("ping -M do -s 8972 10.0.0.2   (on h1;")


def test_the_host_that_all_lossy_connections_share_is_named() -> None:
    here_messages = {rank: Here(rank, f"h{rank}", 100 + rank) for rank in range(4)}
    at = [f"10.0.0.{rank}" for rank in range(4)]
    reports = {
        rank: Stalled(
            rank, f"h{rank}", 100 + rank, "timing", "8", 9, 60.2, connections=[lossy(at[2], rank)]
        )
        for rank in (0, 1, 3)
    }
    assert packet_loss.describe(reports, here_messages, at)[0].startswith(
        "packets are lost from and to h2: TCP retransmitted 9 of the last 20 segments"
    )
