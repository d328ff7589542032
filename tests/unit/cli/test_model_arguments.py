"""`busbw predict` and `busbw explain` as a user types them."""

import json
from pathlib import Path

import pytest

from busbw.cli.file_kinds import read_sweep
from busbw.cli.main import guarded
from busbw.core.collectives import BY_NAME
from busbw.core.json_codec import encode
from busbw.core.pattern import Header
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.pattern_lines import lines

Captured = pytest.CaptureFixture[str]


def run(arguments: str, capsys: Captured) -> tuple[int, str, str]:
    code = guarded(arguments.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("predict --system h100y", 2, "'h100y' is not a system"),
        ("predict --system h1000x8", 2, "did you mean h100?"),
        ("predict --system h100x8 --topo t.xml", 2, "both given"),
        ("predict --topo missing.xml", 2, "missing.xml: No such file"),
        ("predict --system h100x1", 2, "no data crosses a link"),
        ("predict --system h100x8 -e 0", 2, "there is no size between"),
        (
            "predict --system h100x8 --counts zipf:1",
            2,
            "all_reduce moves the same bytes between all ranks",
        ),
        ("predict alltoallv --system h100x8 --counts zipf:-1", 2, "the exponent '-1'"),
        (
            "predict alltoallv --system h100x8 --counts zipf:1 -b 16 -e 16",
            2,
            "no byte of 16 crosses a link",
        ),
        ("predict --system h100x8 --nccl 2.4", 2, "from 2.18 on"),
        ("predict all_redcue --system h100x8", 2, "did you mean all_reduce?"),
        ("predict --system h100x8 --nodes 0", 2, "not numbers of hosts"),
        ("predict --system h100x8 --nodes 1,x", 2, "not numbers of hosts"),
        ("predict --system h100x8 -b 2G -e 1G", 2, "no size between"),
        ("predict --system h100x8 --gpus 9", 2, "a host of h100x8 has 8 GPUs"),
        ("predict --system h100x8 --rails-lost 8 --nodes 2", 2, "lose fewer"),
        ("predict --system h100x8 --algo bing", 2, "names none of them"),
        ("predict --system h100x8 --calibrate missing.json", 2, "missing.json: No such file"),
        ("predict --system h100x8 --pattern missing.jsonl", 2, "missing.jsonl: No such file"),
        ("predict --system h100x8 --scale bytes", 2, "--scale: it is of a pattern"),
        (
            "predict all_gather --system h100x8 --pattern p",
            2,
            "COLLECTIVE: collectives and sizes are those of p",
        ),
        (
            "predict --system h100x8 --pattern p -e 1M",
            2,
            "-e: collectives and sizes are those of p",
        ),
        ("predict --system h100x8 --pattern p --nodes 2,4", 2, "predicted for one number of hosts"),
        (
            "predict --system h100x8 --pattern p --algo ring;allreduce:tree",
            2,
            "it is of one collective",
        ),
        ("predict --system h100x8 --nics=", 2, "it is empty"),
        ("explain missing.json", 2, "missing.json: No such file"),
    ],
)
def test_errors_name_the_value_and_the_correct_form(
    arguments: str, code: int, message: str, capsys: Captured
) -> None:
    exit_code, out, err = run(arguments, capsys)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert "\n\nhint: " in err


def test_a_host_without_gpus_cannot_be_measured(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from busbw.core.topology import Host
    from busbw.host import host_facts

    monkeypatch.setattr(host_facts, "read_host", lambda: Host("h0", gpu_reason="no driver"))
    code, _, err = run("predict", capsys)
    assert code == 3
    assert "no GPU of host h0 could be read: no driver" in err
    assert "hint: describe the system, like --system h100x8 --nics 8x400G" in err


def test_this_host_is_used_where_it_has_gpus(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from busbw.core.topology import Gpu, Host, Nic
    from busbw.host import host_facts

    gpus = [
        Gpu(
            i,
            "NVIDIA H100 80GB HBM3",
            f"0000:{i:02x}:00.0",
            0,
            18,
            25e9,
            63e9,
            sm=90,
            pcie_gen_max=5,
            pcie_width=16,
        )
        for i in range(8)
    ]
    host = Host("h0", gpus=gpus, nics=[Nic(f"mlx5_{i}", "ib", 50e9) for i in range(8)])
    monkeypatch.setattr(host_facts, "read_host", lambda: host)
    _, this_host, _ = run("predict --nodes 2 --format json", capsys)
    _, described, _ = run("predict --nodes 2 --format json --system h100x8", capsys)
    levels = [json.loads(text)["bounds"]["levels"] for text in (this_host, described)]
    assert levels[0] == levels[1]


def test_the_bounds_of_two_hosts(capsys: Captured) -> None:
    code, out, _ = run("predict --system h100x8 --nodes 2", capsys)
    assert code == 0
    assert "NVLSTree *        750.00       618.00       461.16" in out
    assert "482.14 GB/s" in out
    answer = json.loads(run("predict --system h100x8 --nodes 2 --format json", capsys)[1])
    assert answer["schema"] == "busbw.prediction/1"
    assert answer["bounds"]["chosen"] == "NVLSTree"


def test_predict_up_to_100000_gpus(capsys: Captured) -> None:
    code, out, _ = run("predict --system h100x8 --nodes 2,12500 -b 1G", capsys)
    assert code == 0
    assert "12500" in out
    assert "extrapolated" in out
    assert "latency decides up to" in out
    answer = json.loads(
        run("predict --system h100x8 --nodes 2,12500 -b 1G --format json", capsys)[1]
    )
    assert [row["ranks"] for row in answer["rows"]] == [16, 16, 100000, 100000]


def test_nics_that_one_host_does_not_use_are_noted(capsys: Captured) -> None:
    alone = run("predict --system h100x8 -b 1G --nics 8x100G", capsys)[1]
    assert "note: --nics: without effect on one host; give --nodes, like --nodes 2" in alone
    assert "--nics" not in run("predict --system h100x8 -b 1G --nics 8x100G --nodes 2", capsys)[1]


def test_predict_calibrated_by_results(capsys: Captured, recorded: Path) -> None:
    file = recorded / "nccl_tests/old/all_reduce_2x8_h100.txt"
    code, out, _ = run(
        f"predict --system h100x8 --nodes 2,4 -b 1G --wide --calibrate {file}", capsys
    )
    assert code == 0
    assert "calibrated on 2 hosts: 2 of 4 rows are measured sizes" in out


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ("", {"name": "NVIDIA A100-SXM4-80GB"}, "it is of NVIDIA A100-SXM4-80GB"),
        ("", {"name": "NVIDIA H100 PCIe"}, "and the predicted system has H100"),
        ("--gpus 4", {}, "its hosts have 8 ranks, those predicted 4"),
        ("--nodes 1", {}, "it is of 2 hosts, which are not predicted"),
        ("all_gather", {}, "it is of all_reduce"),
        ("alltoallv", {}, "it is of all_reduce"),
        ("", None, ""),
        ("", {"name": "Engineering Sample"}, ""),  # of no table
    ],
)
def test_a_result_that_corrects_nothing_is_refused(
    options: str,
    changes: dict[str, str] | None,
    message: str,
    capsys: Captured,
    recorded: Path,
    tmp_path: Path,
) -> None:
    result = read_sweep(str(recorded / "nccl_tests/old/all_reduce_2x8_h100.txt"), None)
    for device in result.world.devices:
        for field, value in (changes or {}).items():
            setattr(device, field, value)
    file = tmp_path / "run.json"
    file.write_bytes(encode(result))
    words = f"predict {options} --system h100x8 --calibrate {file} -b 1G"
    code, _, err = run(words if "--nodes" in options else f"{words} --nodes 2", capsys)
    assert (code, f"--calibrate {file}: " in err) == ((2, True) if message else (0, False))
    assert message in err


def of_two_ranks(collective: str, engine: str, devices: list[RankDevice], file: Path) -> None:
    """Write a run of 1 MiB in 1 ms."""
    algbw = (1 << 20) / 1e-3
    busbw = algbw * float(BY_NAME[collective].bus_factor(2))
    result = Result(
        SweepSpec(collective=collective),
        world=World(devices, 2),
        library=EngineLibrary(engine),
        rows=[ResultRow(1 << 20, 1, "float", "sum", -1, Cell(1e-3, algbw, busbw), None, 20)],
    )
    file.write_bytes(encode(result))


def test_an_uneven_alltoall_is_calibrated_by_an_even_one(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    gpus = [RankDevice(at, 1, "h1", at, f"0000:0{at}:00", "NVIDIA H200") for at in (0, 1)]
    of_two_ranks("alltoall", "nccl", gpus, file)
    words = f"predict alltoallv --system h200x2 -b 1M -e 1M --calibrate {file}"
    code, out, _ = run(words, capsys)
    assert code == 0 and "calibrated on 1 host" in out


@pytest.mark.parametrize("command", ["explain", "predict --nodes 2 --calibrate"])
def test_a_run_of_cpus_says_nothing_of_a_described_system(
    command: str, capsys: Captured, tmp_path: Path
) -> None:
    file = tmp_path / "two.json"
    cpus = [RankDevice(rank, 1, f"h{rank}", 0, "", "AMD EPYC") for rank in (0, 1)]
    of_two_ranks("all_reduce", "mpi", cpus, file)
    code, _, err = run(f"{command} {file} --system h100x8 --nics 1x25G", capsys)
    assert code == 2
    assert f"{file}: its ranks ran on CPUs (AMD EPYC)" in err


def test_explain_needs_the_nics_of_several_hosts(capsys: Captured, recorded: Path) -> None:
    file = recorded / "nccl_tests/h20_ib/ib.txt"
    code, _, err = run(f"explain {file}", capsys)
    assert code == 2
    assert "--nics 8x400G" in err
    code, out, _ = run(f"explain {file} --nics 8x400G --nccl 2.27.7", capsys)
    assert code == 0
    assert "not Ring: at most 400.00; not Tree: at most 421.88" in out
    assert "nearest to NVLSTree" in " ".join(out.split())
    code, _, _ = run(f"explain {recorded / 'nccl_tests/h20_ib/sockets.txt'} --nics 1x100G", capsys)
    assert code == 1


def test_explain_reads_what_busbw_recorded(capsys: Captured) -> None:
    file = Path(__file__).parents[3] / "benchmarks/all_reduce_2xh200_202611/run_1.json"
    code, out, _ = run(f"explain {file}", capsys)
    assert code == 0
    assert "nearest to Ring" in out


def test_a_pattern_whose_rows_have_no_time_is_a_partial_answer(
    capsys: Captured, tmp_path: Path
) -> None:
    file = tmp_path / "app.jsonl"
    tally = CallTally(Header(world=16), ordered=False)
    comm = tally.add_comm(16, members=range(16))
    tally.add_calls(Arguments(comm, "all_reduce", 1 << 30), 7)
    file.write_bytes(b"".join(lines(tally.to_pattern())))
    code, out, _ = run(f"predict --system h100x8 --pattern {file}", capsys)
    assert (code, "in 7 calls" in out) == (0, True)
    for function in ("send", "recv"):
        tally.add_calls(Arguments(comm, function, 1 << 20), 5)
    file.write_bytes(b"".join(lines(tally.to_pattern())))
    code, out, _ = run(f"predict --system h100x8 --pattern {file}", capsys)
    assert (code, "recv: its time is that of the send" in out) == (0, True)
    tally.add_calls(Arguments(comm, "all_reduce", 0), 2)
    file.write_bytes(b"".join(lines(tally.to_pattern())))
    code, out, _ = run(f"predict --system h100x8 --pattern {file}", capsys)
    assert (code, "no time for 1 row of 2 calls" in out) == (1, True)


def test_a_pattern_is_predicted_for_the_job_that_is_asked_for(
    capsys: Captured, tmp_path: Path
) -> None:
    file = tmp_path / "app.jsonl"
    tally = CallTally(Header(world=16), ordered=False)
    tally.add_calls(
        Arguments(tally.add_comm(16, members=range(16)), "all_gather", 1 << 30, 1 << 24, "float"), 7
    )
    file.write_bytes(b"".join(lines(tally.to_pattern())))
    command = f"predict --system h100x8 --wide --pattern {file}"
    code, out, _ = run(command, capsys)
    assert (code, out.splitlines()[:2]) == (
        0,
        [f"{file} on 2 hosts x 8 H100 (h100x8), NCCL from 2.30 on, predicted", "16 ranks"],
    )
    assert " on 8 hosts x 2 H100 " in run(f"{command} --gpus 2 --nodes 8", capsys)[1]
    code, _, err = run(f"{command} --nodes 16", capsys)
    assert code == 2
    assert "the pattern is of 16 ranks, not 128" in err and "--scale bytes or --scale count" in err
    code, out, _ = run(f"{command} --nodes 16 --scale count --format json", capsys)
    answer = json.loads(out)
    assert (
        answer["ranks"],
        answer["recorded_ranks"],
        answer["scale"],
        answer["rows"][0]["bytes"],
    ) == (128, 16, "count", 8 << 30)
    assert (
        "128 ranks, scaled from 16 by bytes"
        in run(f"{command} --nodes 16 --scale bytes", capsys)[1]
    )


def test_communicators_of_unknown_size_are_those_of_the_job_that_is_asked_for(
    capsys: Captured, tmp_path: Path
) -> None:
    file = tmp_path / "app.jsonl"
    tally = CallTally(Header(ranks=[0]), ordered=False)
    tally.add_calls(Arguments(tally.add_comm(0, read=1), "all_reduce", 1 << 30), 7)
    file.write_bytes(b"".join(lines(tally.to_pattern())))
    code, out, _ = run(f"predict --system h100x8 --pattern {file}", capsys)
    assert (code, "how many ranks it has is unknown" in " ".join(out.split())) == (1, True)
    code, out, _ = run(f"predict --system h100x8 --pattern {file} --nodes 4 --wide", capsys)
    assert (
        code,
        "1 communicator of an unknown number of ranks: taken to be all 32" in " ".join(out.split()),
    ) == (0, True)
    assert " on 4 hosts x 8 H100 " in out


@pytest.mark.parametrize(
    "arguments",
    [
        "predict alltoallv --system h100x8 --counts zipf:1",
        "predict --system h100x8 --nodes 1,2,12500",
    ],
)
def test_tables_fit_80_columns(
    arguments: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = arguments.split()[0]
    monkeypatch.setattr(f"busbw.cli.{command}.width", lambda: 80)
    _, out, _ = run(arguments, capsys)
    assert max(map(len, out.splitlines())) <= 80


def test_explain_takes_the_settings_that_the_log_does_not_state(
    tmp_path: Path, capsys: Captured
) -> None:
    log = tmp_path / "run.log"
    devices = [f"#  Rank {n} Group 0 Pid 1 on h device {n} [0x08] NVIDIA H100" for n in range(8)]
    titles = "#  size  count  type  redop  root  time  algbw  busbw #wrong"
    row = "8589934592 2147483648 float sum -1 40960 209.72 367.00 0"
    log.write_text("\n".join(["# all_reduce_perf", *devices, titles, row]))
    file = f"explain {log} --collective all_reduce"
    code, out, _ = run(file, capsys)
    assert code == 1 and "possible cause: it fits NCCL without NVLS" in out
    for option in ("--no-nvls", "--algo Ring", "--algo ^NVLS"):
        code, out, _ = run(f"{file} {option}", capsys)
        assert code == 0 and "as expected: 36" in out, option
    assert run(f"{file} --algo bing", capsys)[0] == 2
