"""A training for people: Horovod's lines, and the table below them."""

import msgspec
import pytest

from busbw.cli.terminal import COLUMNS
from busbw.core.result import RankDevice
from busbw.core.topology import Host, Topology
from busbw.measure.events import Started
from busbw.measure.record import RunRecord
from busbw.report.registry import render
from busbw.stats.rounds import Interval
from busbw_accel.train import text as train_text
from busbw_accel.train.kinds import Surveyed, Trained
from busbw_accel.train.rounds_text import plus_minus
from busbw_accel.train.types import ALONE, TrainRun


def test_the_whole_text(trained, golden):
    golden("training/vgg16.txt", train_text.render_all(trained, COLUMNS))


def test_lines_of_horovod_are_printed_as_they_arrive(trained):
    assert train_text.iteration(trained, "none", 1, 125.04) == "Iter #1: 125.0 img/sec per GPU\n"
    assert (
        train_text.iteration(trained, "none", 0, 125.04)
        == "\nnone\nIter #0: 125.0 img/sec per GPU\n"
    )
    assert (
        train_text.method_end(trained, "none")
        == "Img/sec per GPU: 125.7 +-0.8\nTotal img/sec on 2 GPU(s): 251.5 +-1.7\n"
    )
    assert train_text.method_end(trained, "topk") == ""


def test_each_method_and_exchange_is_in_the_file_when_it_is_measured(trained, planned, tmp_path):
    run, plan = trained.training.runs.pop(), planned.plan
    planned.plan = None
    for result, events in ((trained, [Trained(run)]), (planned, [Trained(run), Surveyed(plan)])):
        record = RunRecord(tmp_path / f"{type(result).__name__}.json")
        record.take(Started(result))
        for event in events:
            record.take(event)
            saved = msgspec.json.decode(record.file.read_bytes(), type=type(result))
            assert saved.training.runs[-1] == run
    assert saved.plan == plan


def test_one_iteration_has_no_spread(trained):
    trained.training.runs = [TrainRun("none", 0, [1.0], [125.04])]
    assert (
        train_text.method_end(trained, "none")
        == "Img/sec per GPU: 125.0\nTotal img/sec on 2 GPU(s): 250.1\n"
    )
    assert train_text.footer(trained).splitlines()[-1].split()[:5] == [
        "none",
        "125.0",
        "-",
        "1000.00",
        "-",
    ]


def test_a_rate_is_all_samples_over_all_time(trained):
    # 100 samples in 1 s and 100 in 4 s, which are 200 in 5 s.
    trained.training.runs = [TrainRun("none", 0, [1.0, 4.0], [100.0, 25.0])]
    rate = trained.training.rate("none")
    assert rate is not None
    assert rate[0] == pytest.approx(40)


def test_figures_are_of_all_rounds(trained):
    training = trained.training
    assert training.rate("2d+int8") == (
        pytest.approx(2 / (1 / 245 + 1 / 246)),
        pytest.approx(1.96 * 0.5),
    )
    assert training.step_s("none") == pytest.approx(1.05)
    assert training.efficiency("2d+int8") == pytest.approx(245.5 / 251.5, rel=1e-4)
    assert training.exposed_s("none") == pytest.approx(0.55)
    assert training.codec_s("none") == 0 and training.network_s("none") == pytest.approx(0.545)
    assert training.codec_s("2d+int8") == pytest.approx(0.005) and training.network_s(
        "2d+int8"
    ) == pytest.approx(0.01)
    assert (training.codec_s("topk"), training.network_s("topk")) == (None, None)
    assert (
        training.rate("topk"),
        training.step_s("topk"),
        training.efficiency("topk"),
        training.exposed_s("topk"),
    ) == (None,) * 4


def test_the_spread_of_steps_and_of_an_unknown_figure(trained):
    run = trained.training.of("2d+int8")[0]
    trained.training.runs = [run]
    run.steps_s = [0.01 * step for step in range(1, 20)]
    assert " 20.00 - 180.00 " in train_text.footer(trained)
    assert plus_minus(0.5, Interval(-200.0, 1.0), 1e3, 2) == "500.00 +-2e+05"


def test_the_table_of_a_training_is_the_view_named_table(trained):
    assert render(trained, "table") == train_text.render_all(trained)


def test_before_the_first_method_there_is_no_table(trained):
    trained.training.runs.clear()
    assert train_text.footer(trained) == ""


def last_line(result):
    return next(
        line for line in train_text.footer(result).splitlines() if line.startswith("none")
    ).split()


def test_unknown_parts_are_dashes_and_no_time_is_negative(trained):
    training = trained.training
    assert last_line(trained)[-5:] == ["-", "545.00", "+-0.00", "553.43", "560.00"], (
        "DDP as it is has no codec"
    )
    for run in training.of("none"):
        run.steps_s, run.silent_s, run.seen = (
            [0.499 + 0.001 * run.round] * 4,
            [0.499 + 0.003 * run.round] * 3,
            None,
        )
    assert last_line(trained)[-5:] == ["~0", "~0", "~0", "553.43", "-"]
    assert "~0: less than can be measured" in train_text.footer(trained)
    assert " -0.0" not in train_text.footer(trained)
    training.hosts = 1
    assert last_line(trained)[-2:] == ["-", "-"], "nothing leaves a single host"


def noisy(training, alone_s, silent_s, int8_s, int8_silent_s):
    """Four rounds: the factors are how much each varies from the others."""
    training.spec = msgspec.structs.replace(training.spec, rounds=4)
    training.runs = []
    for number, factor in enumerate((1.0, 1.01, 0.99, 1.005)):
        training.runs += [
            TrainRun(ALONE, number, [alone_s * factor] * 3, [2 / alone_s], silent_s=[silent_s] * 3),
            TrainRun(
                "int8", number, [int8_s / factor] * 3, [2 / int8_s], silent_s=[int8_silent_s] * 3
            ),
        ]


def test_a_step_alone_longer_than_with_the_network_is_a_contradiction(trained):
    """Four emulated hosts on two cores: 1596 ms alone, 172 on a perfect network, 590 with int8."""
    noisy(trained.training, 1.596, 0.172, 0.59, 0.6)
    trained.world.devices = [
        RankDevice(rank, 10, f"node{rank}", 0, "", "CPU", process=rank) for rank in range(4)
    ]
    trained.topology = Topology([Host(f"node{rank}", "one-boot", cpus=2) for rank in range(4)])
    assert " 270.5 % +-0.0 " in train_text.footer(trained)
    output = train_text.contradiction(trained).splitlines()
    assert output == [
        "",
        "no comparison: figures contradict each other:",
        (
            "  a step alone 1598.00 ms (1576.31 to 1619.68), more than a step on a perfect network"
            " 172.00 ms"
        ),
        (
            "  a step alone 1598.00 ms (1576.31 to 1619.68), more than a step with int8 589.30 ms"
            " (581.27 to 597.32)"
        ),
        (
            "  the codec of int8 428.00 ms, more than what int8 exposes -1008.70 ms (-1038.41 to"
            " -978.99)"
        ),
        (
            "hint: 4 ranks share 2 cores: start at most one for each core, or measure for longer:"
            " --rounds 8"
        ),
    ]
    assert output[1] in train_text.footer(trained)


def test_a_part_larger_than_its_whole_is_a_contradiction(trained):
    """A codec of 64.7 ms within 30.2 exposed, on GPUs."""
    noisy(trained.training, 0.17, 0.171, 0.2002, 0.2357)
    output = train_text.contradiction(trained).splitlines()
    assert [line.partition(" ms")[0] for line in output[2:4]] == [
        "  the codec of int8 64.70",
        "  the network of int8 -35.74",
    ]
    assert output[3].endswith(": no time is negative")
    assert (
        output[-1]
        == "hint: measure while nothing else runs on these hosts, or measure for longer: --rounds 8"
    )


def test_differences_within_the_noise_do_not_contradict(trained):
    assert train_text.contradiction(trained) == ""
    noisy(trained.training, 0.17, 0.168, 0.171, 0.170)
    assert train_text.contradiction(trained) == "", "less than 2 % of a step"
    trained.training.runs = trained.training.runs[:2]
    trained.training.runs[0].silent_s = [0.15] * 3
    assert train_text.contradiction(trained) == "", "13 %, but one round has no interval"
    trained.training.runs[0].silent_s = [0.05] * 3
    assert "more than a step on a perfect network" in train_text.contradiction(trained)


def test_a_share_over_all_is_a_contradiction_where_the_median_steps_are_none(trained):
    training = trained.training
    noisy(training, 0.17, 0.171, 0.172, 0.171)
    for number, run in enumerate(training.of(ALONE)):
        run.rates = [9.0 + 0.01 * number]
    assert (
        train_text.contradiction(trained)
        .splitlines()[2]
        .startswith("  int8 of alone 129.0 % (128.7 to 129.3), more than all 100.0 %")
    )


def test_rounds_that_differ_too_much_are_named(trained):
    training = trained.training
    noisy(training, 0.17, 0.171, 0.2, 0.172)
    assert "differ too much" not in train_text.footer(trained)
    training.of("int8")[2].rates = [1.0]
    assert train_text.contradiction(trained) == ""
    assert " 7.7 - 298.6 % " in train_text.footer(trained)
    assert train_text.footer(trained).splitlines()[-3:] == [
        "",
        "rounds differ too much to compare: int8 is between 7.7 and 298.6 % of alone",
        "hint: measure while nothing else runs on these hosts, or measure for longer: --rounds 8",
    ]
