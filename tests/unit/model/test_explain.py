"""Algorithms excluded by bounds and named by the model."""

from pathlib import Path

import pytest

from busbw.cli.explain import command
from busbw.cli.main import guarded
from busbw.core.cells import headline
from busbw.core.result import Result
from busbw.model import explanation_text
from busbw.model.causes import stated
from busbw.model.estimate import EstimateInputs
from busbw.model.explain import ExplainedFigure, explain
from busbw.model.measured_system import shape
from busbw.model.nccl.choice import allowed
from busbw.model.nccl.constants import release
from busbw.model.systems import parse_system, with_nics
from busbw.model.types import Explanation
from busbw.report import read


def explain_log(path: Path, system: str, nics: str, version: str, algo: str = "") -> Explanation:
    result = read.read(path.read_bytes(), path.name)
    assert isinstance(result, Result)
    figure = headline(result)
    assert figure is not None
    setting = EstimateInputs(
        with_nics(parse_system(system), nics),
        release(version),
        allowed({"NCCL_ALGO": algo}, "all_reduce"),
    )
    return explain(ExplainedFigure(result.spec.row, 2, 8, figure, path.name), setting, "described")


def test_two_hosts_of_8_h100(recorded: Path) -> None:
    explanation = explain_log(
        recorded / "nccl_tests/old/all_reduce_2x8_h100.txt", "h100x8", "16x200G", "2.21.5"
    )
    assert explanation.fits == explanation.chosen == "NVLSTree"
    assert {judged_.algorithm: judged_.excluded for judged_ in explanation.judged} == {
        "NVLSTree": False,
        "Ring": True,
        "Tree": True,
        "NVLS": False,
        "CollNetChain": True,
        "CollNetDirect": False,
    }
    assert explanation.verdict == "expected"
    assert explanation_text.summary(explanation).startswith(
        "not Ring: at most 400.00; not Tree: at most 421.88;"
    )
    assert "nearest to NVLSTree, whose model says 473.60" in explanation_text.summary(explanation)
    nvlink, nics = explanation.loads
    assert (nvlink.rate, nics.rate) == (450e9, 400e9)
    assert nics.used == pytest.approx(247.89e9, rel=1e-4)  # algbw: each byte crosses once
    assert nvlink.used == pytest.approx(247.89e9 * 9 / 8, rel=1e-4)
    assert any("issue 196" in note for note in explanation.notes)


def test_two_hosts_of_8_h20(recorded: Path) -> None:
    explanation = explain_log(recorded / "nccl_tests/h20_ib/ib.txt", "h20x8", "8x400G", "2.27.7")
    assert explanation.fits == "NVLSTree"
    excluded = {judged.algorithm for judged in explanation.judged if judged.excluded}
    assert excluded >= {"Ring", "Tree"}
    to_nics = {judged.algorithm: judged.planned_to is not None for judged in explanation.judged}
    assert (to_nics["Ring"], to_nics["NVLSTree"]) == (True, False)


def test_sockets_are_slower_than_expected(recorded: Path) -> None:
    explanation = explain_log(
        recorded / "nccl_tests/h20_ib/sockets.txt", "h20x8", "1x100G", "2.27.7"
    )
    assert explanation.verdict == "slower"
    assert "slower than expected" in explanation_text.text(explanation, 80)


def test_a_busbw_above_every_bound_excludes_all(recorded: Path) -> None:
    explanation = explain_log(
        recorded / "nccl_tests/old/all_reduce_2x8_h100.txt", "h100x8", "8x100G", "2.21.5"
    )
    assert all(judged_.excluded for judged_ in explanation.judged)
    assert explanation.fits == ""


def test_the_text_fits_a_narrow_terminal(recorded: Path) -> None:
    explanation = explain_log(
        recorded / "nccl_tests/old/all_reduce_2x8_h100.txt", "h100x8", "16x200G", "2.21.5"
    )
    assert max(map(len, explanation_text.text(explanation, 80).splitlines())) <= 80


RAN = Path(__file__).parents[3] / "benchmarks" / "net_2x2_4xh200_202611" / "forced_TL1_1.json"


@pytest.mark.parametrize(("nics", "named"), [("1x25G", "Tree"), ("1x1G", "")])
def test_what_ran_by_the_result_itself_is_named_if_the_links_allow_it(
    nics: str, named: str
) -> None:
    result = read.read(RAN.read_bytes(), RAN.name)
    assert isinstance(result, Result)
    figure = headline(result)
    assert figure is not None
    setting = EstimateInputs(
        with_nics(parse_system("h200x2"), nics), release("2.28.9"), allowed({}, "all_reduce")
    )
    measured = ExplainedFigure(result.spec.row, 2, 2, figure, RAN.name)
    explanation = explain(measured, setting, "described")
    assert (explanation.fits, explanation.ran) == (named, named and "Tree LL, 1 channel")
    if named:
        assert "NCCL ran Tree LL, 1 channel" in explanation_text.summary(explanation)


@pytest.mark.parametrize(
    ("hosts", "domains"),
    [(18, (1, 72)), (16, (1, 64)), (32, (2, 64)), (36, (2, 72)), (33, (33, 4))],
)
def test_hosts_of_racks_fill_the_fewest_domains_if_evenly(
    hosts: int, domains: tuple[int, int]
) -> None:
    ranks = [
        f"#  Rank {rank} Group  0 Pid 1 on host{rank // 4} device {rank % 4} [0x08] NVIDIA GB300"
        for rank in range(4 * hosts)
    ]
    log = [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20",
        "# Using devices",
        *ranks,
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong",
        "  8  2  float  sum  -1  58.31  0.00  0.00  0  58.40  0.00  0.00  0",
    ]
    result = read.read("\n".join(log).encode(), "rack.log")
    assert isinstance(result, Result)
    assert shape(result) == domains


def one_row(
    gpu: str, hosts: int, per_host: int, size: int, busbw: float, before: str = ""
) -> Result:
    """The result of one size of all_reduce."""
    log = one_row_text(gpu, hosts, per_host, size, busbw, before)
    result = read.read(log.encode(), "run.log")
    assert isinstance(result, Result)
    return result


def one_row_text(
    gpu: str, hosts: int, per_host: int, size: int, busbw: float, before: str = ""
) -> str:
    """The log of one size of all_reduce, with lines `before` it."""
    ranks = hosts * per_host
    devices = [
        f"#  Rank {rank} Group  0 Pid 1 on h{rank // per_host} device {rank % per_host} [0x08] {gpu}"
        for rank in range(ranks)
    ]
    algbw = busbw * ranks / (2 * (ranks - 1))
    cell = f"{size / algbw / 1e3:.1f} {algbw:.2f} {busbw:.2f} 0"
    titles = (
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
    )
    row = f"{size} {size // 4} float sum -1 {cell} {cell}"
    return "\n".join([before, "# Collective test starting: all_reduce_perf", *devices, titles, row])


def explained(result: Result, system: str, nics: str = "") -> Explanation:
    hardware = with_nics(parse_system(system), nics) if nics else parse_system(system)
    figure = headline(result)
    assert figure is not None
    hosts, per_host = shape(result)
    slowing = stated(result, hardware.nics if hosts > 1 else 0)
    setting = EstimateInputs(hardware, may=allowed(result.environment, "all_reduce"))
    measured = ExplainedFigure(result.spec.row, hosts, per_host, figure, "run.log", slowing)
    return explain(measured, setting, "described")


H100, GIB = "NVIDIA H100 80GB HBM3", 1 << 30


@pytest.mark.parametrize(
    "before",
    [
        "mpirun -np 8 -x NCCL_ALGO=Ring ./all_reduce_perf -b 8G -e 8G",
        "NCCL_NVLS_ENABLE=0 ./all_reduce_perf -b 8G -e 8G -g 8",
    ],
)
def test_rings_are_compared_with_rings_where_the_log_says_that_they_ran(before: str) -> None:
    explanation = explained(one_row(H100, 1, 8, 8 * GIB, 367.0, before), "h100x8")
    assert (explanation.verdict, explanation.causes) == ("expected", [])
    assert explanation.forecast is not None
    assert explanation.forecast.basis == "same system"


@pytest.mark.parametrize(
    ("result", "system", "nics", "cause"),
    [
        (one_row(H100, 1, 8, 8 * GIB, 367.0), "h100x8", "", "it fits NCCL without NVLS"),
        (one_row("NVIDIA H20", 2, 8, GIB, 343.0), "h20x8", "8x400G", "it fits NCCL without NVLS"),
        (one_row(H100, 4, 8, 8 * GIB, 180.0), "h100x8", "8x400G", "it fits 4 of 8 NICs"),
        (
            one_row(H100, 1, 8, GIB, 20.0, "NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 8"),
            "h100x8",
            "",
            "the run set NCCL_P2P_DISABLE=1",
        ),
        (
            one_row(H100, 4, 8, GIB, 90.0, "-x NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 \\"),
            "h100x8",
            "8x400G",
            "NCCL_IB_HCA names 2 of 8 NICs: mlx5_0:1, mlx5_1:1",
        ),
        (
            one_row(
                H100,
                4,
                8,
                GIB,
                9.0,
                "h0:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",
            ),
            "h100x8",
            "8x400G",
            "NCCL's log has connections by NET/Socket: TCP, not RDMA",
        ),
    ],
)
def test_a_slow_run_has_the_cause_that_fits(
    result: Result, system: str, nics: str, cause: str
) -> None:
    explanation = explained(result, system, nics)
    assert explanation.verdict == "slower"
    assert explanation.causes[0].startswith(cause)
    assert f"possible cause: {cause}" in explanation_text.compared(explanation)


def test_a_run_with_sharp_switched_on_is_compared_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for busbw, code, said in (
        (450.0, 0, "as expected"),
        (340.0, 1, "possible cause: it fits NCCL without reduction in the network's switches"),
    ):
        log = one_row_text(H100, 8, 8, 8 * GIB, busbw, "-x NCCL_COLLNET_ENABLE=1 \\")
        (tmp_path / "run.log").write_text(log)
        given = f"{tmp_path / 'run.log'} --system h100x8 --nics 8x400G"
        assert command.main(given.split(), standalone_mode=False) == code
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(("busbw", "said"), [(605.9, "as expected"), (530.0, "slower")])
def test_the_range_is_wider_where_no_run_with_sharp_says_how_far_off_the_model_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], busbw: float, said: str
) -> None:
    log = one_row_text("NVIDIA B200", 4, 8, 16 * GIB, busbw, "-x NCCL_COLLNET_ENABLE=1 \\")
    (tmp_path / "run.log").write_text(log)
    given = f"{tmp_path / 'run.log'} --system b200x8 --nics 8x400G"
    command.main(given.split(), standalone_mode=False)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gpu", "hosts", "per_host", "busbw", "options", "code", "said"),
    [
        # Parts of racks: how many GPUs of each take part cannot be seen in the log.
        ("NVIDIA GB200", 4, 4, 691.0, "gb200nvl8 --nics 8x400G", 0, "2 hosts x 8 GB200"),
        ("NVIDIA GB200", 16, 4, 798.0, "gb200nvl32", 0, "2 hosts x 32 GB200"),
        ("NVIDIA GB200", 3, 4, 185.0, "gb200nvl8", 0, "3 hosts x 4 GB200"),
        # Without a peer on its host it does not matter whether NVLink joins a card to others.
        ("NVIDIA A100-PCIE-40GB", 2, 1, 8.8, "--nics 1x200G", 1, "2 hosts x 1 "),
        ("NVIDIA A100 80GB PCIe", 1, 4, 20.0, "", 2, "like --system a100pciex4 "),
        (
            "NVIDIA A100 80GB PCIe",
            1,
            2,
            208.0,
            "a100pciex2",
            1,
            "pair with them is --system a100x2",
        ),
        ("NVIDIA A100 80GB PCIe", 1, 2, 208.0, "a100x2", 0, "NVLink, 12 links"),
        ("NVIDIA H100 PCIe", 1, 2, 40.0, "h100pciex2", 0, "--system h100nvlx2"),
        ("NVIDIA H200 NVL", 2, 8, 35.0, "--nics 4x400G", 2, "like --system h200nvlx8 "),
    ],
)
def test_parts_of_racks_and_cards_are_described_in_few_words(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gpu: str,
    hosts: int,
    per_host: int,
    busbw: float,
    options: str,
    code: int,
    said: str,
) -> None:
    log = tmp_path / "run.log"
    log.write_text(one_row_text(gpu, hosts, per_host, 16 * GIB, busbw))
    given = options if options.startswith("--") or not options else f"--system {options}"
    assert guarded(["explain", str(log), *given.split()]) == code
    out, err = capsys.readouterr()
    assert said in " ".join(f"{out} {err}".split())


def test_one_gpu_of_a_host_is_no_faster_than_its_slot_whatever_the_nics() -> None:
    forced = "NCCL_ALGO=Tree ./all_reduce_perf"
    explanation = explained(one_row(H100, 2, 1, 16 * GIB, 50.0, forced), "h100x1", "4x400G")
    assert explanation.verdict == "expected"
    assert explanation.described.nics_text == "4 x 50 GB/s"
    (load,) = explanation.loads
    assert load.link == "slots of the GPUs of each host, 1 x 63 GB/s"
    assert (load.rate, load.used) == (63e9, 50e9)
    assert explained(one_row(H100, 2, 1, GIB, 70.0), "h100x1", "4x400G").fits == ""


@pytest.mark.parametrize(
    ("result", "nics", "notes"),
    [
        (one_row(H100, 1, 8, 8 * GIB, 475.0), "", ["NVLS has 8 channels of 59.5", "issue 212"]),
        (one_row(H100, 4, 8, 8 * GIB, 320.0), "8x400G", ["NVLSTree has 8 channels of 45.5"]),
        (one_row(H100, 2, 8, 8 * GIB, 470.0), "8x400G", ["has 8 channels of 57.7", "issue 196"]),
        (
            one_row(H100, 4, 8, 512 << 10, 5.0),
            "8x400G",
            ["Ring has 8 channels of 45", "small size", "own choice would be Tree"],
        ),
        (one_row(H100, 1, 8, 8 * GIB, 367.0), "", ["Ring has 12 channels of 30", "be NVLS"]),
    ],
)
def test_notes_are_of_what_fits(result: Result, nics: str, notes: list[str]) -> None:
    explanation = explained(result, "h100x8", nics)
    assert len(explanation.notes) == len(notes), explanation.notes
    for note, part in zip(explanation.notes, notes, strict=True):
        assert part in note
    assert explanation.notes[0].endswith(" together")


@pytest.mark.parametrize("busbw", [14.0, 250.0])
def test_no_cause_is_named_where_none_fits(busbw: float) -> None:
    explanation = explained(one_row(H100, 4, 8, 8 * GIB, busbw), "h100x8", "8x400G")
    assert explanation.causes == [], explanation.forecast
