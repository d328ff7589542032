"""The warnings of NCCL's log say why a job failed, and not only that others lost it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.main import guarded
from busbw.core.finding import Verdict
from busbw.job.nccl_warnings import report


def warning(text: str, host: str = "h1", gpu: int = 0, pid: int = 7000) -> str:
    return f"{host}:{pid}:{pid + 9} [{gpu}] misc/somewhere.cc:49 NCCL WARN {text}\n"


CLOSED = "socketProgress: Connection closed by remote peer h2<40112>"


def message(log: str) -> str:
    found = report(log)
    assert found is not None and found.verdict is Verdict.FAIL
    return found.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Cuda failure 2 'out of memory'", "its GPU has no memory left for NCCL's buffers"),
        ("Cuda failure 'unspecified launch failure'", "CUDA failed: unspecified launch failure"),
        (
            "Error while creating shared memory segment /dev/shm/nccl-x1 (size 9637888)",
            "no shared memory: /dev/shm is full, or too small",
        ),
        (
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
            "ranks use the same GPU: rank 1 and rank 0 both on CUDA device 1b000",
        ),
        ("Bootstrap : no socket interface found", "no network interface for NCCL"),
        (
            "Message truncated : received 2048 bytes instead of 1024",
            "ranks made different calls: received 2048 bytes instead of 1024",
        ),
        ("NET/IB : mlx5_3:1 async fatal event: port error", "port mlx5_3:1 reports: port error"),
        (
            "NET/IB : mlx5_3:1 Got async event : local access violation work queue error",
            "the NIC of port mlx5_3:1 could not access memory",
        ),
        (
            "Call to ibv_modify_qp failed with error Network is unreachable errno 101",
            "ibv_modify_qp failed: Network is unreachable",
        ),
        ("Call to ibv_create_qp failed", "ibv_create_qp failed: no reason given"),
        (
            "Call to ibv_reg_mr failed with error Cannot allocate memory",
            "ibv_reg_mr failed: Cannot allocate memory",
        ),
        (
            "NET/IB : Got completion from peer 10.0.0.2<511> with status=12 opcode=0 len=0 vendor"
            " err 129 (Recv)",
            "10.0.0.2<511> did not answer (status 12, retries exceeded): its process ended, or its"
            " port or the network lost packets",
        ),
        (
            "NET/IB: Got completion from peer 10.0.0.2<511> with status=IBV_WC_RETRY_EXC_ERR(12)",
            "10.0.0.2<511> did not answer (status 12, retries exceeded): its process ended, or its"
            " port or the network lost packets",
        ),
        (
            "NET/IB : Got completion with error 5, opcode 1, len 0, vendor err 249",
            "a transfer with its peer ended with an error",
        ),
        (
            "socketPollConnect: connect returned No route to host, retrying (1/34) after sleep",
            "no connection: No route to host",
        ),
        (
            "Net : Call to recv from 10.0.0.8<911> failed : Connection refused",
            "no connection: Connection refused",
        ),
        (
            "Net : Call to recv from 10.0.0.8<911> failed : Connection reset by peer",
            "10.0.0.8<911> closed the connection: it ended first",
        ),
        (CLOSED, "h2<40112> closed the connection: it ended first"),
    ],
)
def test_a_warning_tells_the_reason(text: str, reason: str) -> None:
    assert message(warning(text, gpu=3)) == f"NCCL failed on h1, GPU 3: {reason}"


def test_a_cause_counts_before_lost_connections_above_it() -> None:
    log = warning(CLOSED) + warning("Failed to CUDA calloc 6291456 bytes", host="h2", gpu=5)
    assert message(log).startswith("NCCL failed on h2, GPU 5: its GPU has no memory left")


def test_the_first_counts_of_what_may_follow_from_each_other() -> None:
    """After a lost transfer NCCL's kernels are ended, and CUDA may fail too."""
    lost = warning("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129")
    failed = warning("Cuda failure 'an illegal memory access was encountered'", gpu=1)
    assert message(lost + failed).startswith("NCCL failed on h1, GPU 0: its peer did not answer")
    assert message(failed + lost).startswith("NCCL failed on h1, GPU 1: CUDA failed")


def test_warnings_that_differ_in_numbers_alone_are_one_line_of_evidence() -> None:
    log = "".join(
        warning(f"Socket recv failed while polling for opId=0x7f{pid:04x}", pid=pid)
        for pid in range(100, 140)
    )
    found = report(log + warning(CLOSED))
    assert found is not None
    assert found.evidence == [
        "h1, GPU 0: Socket recv failed while polling for opId=0x7f0064, in 40 processes",
        f"h1, GPU 0: {CLOSED}",
    ]


def test_a_warning_of_an_unknown_kind_is_no_failure() -> None:
    """NCCL warns of what it does without too."""
    found = report(warning("Failed to open libibverbs.so[.1]"))
    assert found is not None and found.verdict is Verdict.UNKNOWN
    assert found.message == "NCCL warned, first on h1, GPU 0; whether the job failed is unknown"


def test_a_log_without_a_warning_says_nothing() -> None:
    assert report("h1:1:2 [0] NCCL INFO Connection closed by localRank 2\n") is None
    assert report("NCCL WARN without a process\n") is None


@pytest.mark.parametrize("label", ["[1,3]<stderr>:", "worker-0: ", "2026-11-02 10:00:00.1 | "])
def test_launchers_and_collectors_put_labels_before_lines(label: str) -> None:
    log = "".join(label + line for line in (warning(CLOSED) * 2).splitlines(keepends=True))
    assert message(log.replace("\n", "\r\n")) == message(warning(CLOSED))


def test_pytorch_repeats_the_last_warning() -> None:
    """It does so without NCCL_DEBUG too."""
    log = "".join(
        f"[rank{rank}]: ncclUnhandledCudaError: Call to CUDA function failed.\n"
        f"[rank{rank}]: Last error:\n[rank{rank}]: {text}\n"
        for rank, text in ((0, CLOSED), (3, "Cuda failure 2 'out of memory'"))
    )
    assert message(log) == "NCCL failed on rank 3: its GPU has no memory left for NCCL's buffers"
    assert message("Last error:\n" + CLOSED + "\n").startswith("NCCL failed on a rank: h2<40112>")
    ray = "(Worker pid=9, ip=10.0.0.8) "
    assert message(f"{ray}Last error:\n{ray}{CLOSED}\n").startswith(
        "NCCL failed on pid=9, ip=10.0."
    )
    assert report("Last error:") is None
    assert report("Last error:\nnone\n") is None, "of another program"


def test_nccl_tests_without_a_row_say_why() -> None:
    """With NCCL_DEBUG unset its own line is all that there is."""
    lost = "remote process exited or there was a network error"
    log = f"h2: Test NCCL failure common.cu:1279 '{lost} / '\n .. h2 pid 9: Test failure\n" * 8
    found = report(log)
    assert found is not None and found.evidence == [f"h2: {lost}"]
    assert found.message == "NCCL failed on h2: another process ended, or the network failed"
    cause = (
        "h1: Test NCCL failure common.cu:9 'unhandled cuda error / Cuda failure 2 'out of memory''"
    )
    assert (
        message(log + cause) == "NCCL failed on h1: its GPU has no memory left for NCCL's buffers"
    )


@given(st.text(alphabet="h1:7 []NCLWAR<>\n", max_size=300))
def test_any_text_is_read(text: str) -> None:
    report(text + warning("x")[:-1] + text)


def test_show_tells_it_of_a_log_of_several_and_beside_calls(tmp_path, capsys) -> None:
    (tmp_path / "a.log").write_text("h1:1:2 [0] NCCL INFO init.cc:9 -> 3\n" + warning(CLOSED))
    (tmp_path / "b.log").write_text(warning("Cuda failure 'out of memory'", host="h2"))
    assert guarded(["show", "--wide", str(tmp_path / "a.log")]) == 1
    assert capsys.readouterr().out.startswith("FAIL    NCCL failed on h1, GPU 0: h2<40112> closed")
    assert guarded(["show", "--wide", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("FAIL    NCCL failed on h2, GPU 0: its GPU has no")
    assert guarded(["show", "--wide", str(tmp_path / "a.log"), str(tmp_path / "b.log")]) == 1
    assert capsys.readouterr().out.startswith("FAIL    NCCL failed on h2, GPU 0: its GPU has no")


CALL = (
    "h1:7:7 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 64 datatype 7 op 0"
    " root 0 comm 0x3 [nranks=2] stream 0x4\n"
)


def test_calls_are_shown_with_the_reason_as_a_note(tmp_path, capsys) -> None:
    (tmp_path / "a.log").write_text(CALL + warning(CLOSED))
    guarded(["show", "--wide", str(tmp_path / "a.log")])
    assert "the job failed: NCCL failed on h1, GPU 0: h2<40112> closed" in capsys.readouterr().out


def test_a_folder_of_torchrun_stands_for_the_logs_of_its_last_attempt(tmp_path, capsys) -> None:
    logs = tmp_path / "none_zi60amav"
    for attempt, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        folder = logs / f"attempt_{attempt}" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(warning(CLOSED) if attempt else "")
        (folder / "stdout.log").write_text("loss 2.3\n")
        (folder / "error.json").write_text('{"message": {"message": "RuntimeError"}}')
    for path in (tmp_path, logs, logs / "attempt_1"):
        assert guarded(["show", "--wide", str(path)]) == 1
        assert capsys.readouterr().out.startswith("FAIL    NCCL failed on h1, GPU 0: h2<40112>")
    assert guarded(["show", str(logs / "attempt_0")]) == 2

    (logs / "attempt_1" / "0" / "stdout.log").write_text(CALL)
    assert guarded(["show", "--wide", str(logs)]) == 0
    assert "the job failed: NCCL failed on h1, GPU 0: h2<40112>" in capsys.readouterr().out

    (tmp_path / "none_later" / "attempt_0" / "0").mkdir(parents=True)
    (tmp_path / "none_later" / "attempt_0" / "0" / "stderr.log").write_text(CALL)
    assert guarded(["show", str(tmp_path)]) == 2
    assert "the files of 2 runs\n\nhint: busbw show " in capsys.readouterr().err


def test_the_error_of_a_server_without_a_line_of_nccl() -> None:
    """The line before it in the traceback has the same words."""
    begin = "(Worker pid=13737) ERROR 05-22 10:26:17 [multiproc_executor.py:870] "
    log = f'{begin}    raise RuntimeError(f"NCCL error: {{error_str}}")\n'
    assert report(log) is None
    for error, reason in (
        ("unhandled system error (run with NCCL_DEBUG=INFO for details)", "unhandled system error"),
        ("invalid usage (run with NCCL_DEBUG=WARN for details)", "invalid usage"),
    ):
        assert message(f"{log}{begin}RuntimeError: NCCL error: {error}") == (
            f"NCCL failed on pid=13737: an {reason}, and not NCCL's warning of it"
        )


def test_a_port_that_nccl_may_survive_is_the_cause_if_anything_failed() -> None:
    down = warning("NET/IB : mlx5_32:1 Got async error event: port error")
    up = warning("NET/IB : mlx5_32:1 Got async error event: port active")
    found = report(down + up)
    assert found is not None and found.verdict is Verdict.UNKNOWN
    assert found.message == (
        "NCCL warned on h1, GPU 0: port mlx5_32:1 reports: port error; whether the job failed is"
        " unknown"
    )
    retries = warning("NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0")
    assert message(retries + down) == "NCCL failed on h1, GPU 0: port mlx5_32:1 reports: port error"
