"""A training for people: Horovod's lines, and the table below them."""

import pytest

from busbw.core.training import TrainRun
from busbw.views import training
from busbw.views.registry import render


def test_the_whole_text(trained, golden):
    golden("training/vgg16.txt", training.render_all(trained))


def test_horovods_lines_come_as_it_goes(trained):
    assert training.iteration(trained, "none", 1, 125.04) == "Iter #1: 125.0 img/sec per GPU\n"
    assert training.iteration(trained, "none", 0, 125.04) == "\nnone\nIter #0: 125.0 img/sec per GPU\n"
    assert training.method_end(trained, "none") == "Img/sec per GPU: 125.7 +-0.8\nTotal img/sec on 2 GPU(s): 251.5 +-1.7\n"
    assert training.method_end(trained, "topk") == ""


def test_one_iteration_has_no_spread(trained):
    trained.training.runs = [TrainRun("none", 0, [1.0], [125.04])]
    assert training.method_end(trained, "none") == "Img/sec per GPU: 125.0\nTotal img/sec on 2 GPU(s): 250.1\n"
    assert training.footer(trained).splitlines()[-1].split()[:5] == ["none", "125.0", "-", "1000.00", "-"]


def test_a_rate_is_all_samples_over_all_time(trained):
    # 100 samples in 1 s and 100 in 4 s, which are 200 in 5 s.
    trained.training.runs = [TrainRun("none", 0, [1.0, 4.0], [100.0, 25.0])]
    rate = trained.training.rate("none")
    assert rate is not None
    assert rate[0] == pytest.approx(40)


def test_figures_are_of_all_rounds(trained):
    made = trained.training
    assert made.rate("2d+int8") == (pytest.approx(2 / (1 / 245 + 1 / 246)), pytest.approx(1.96 * 0.5))
    assert made.step_s("none") == pytest.approx(1.05)
    assert made.efficiency("2d+int8") == pytest.approx(245.5 / 251.5, rel=1e-4)
    assert made.exposed_s("none") == pytest.approx(0.55)
    assert made.codec_s("none") == 0 and made.network_s("none") == pytest.approx(0.545)
    assert made.codec_s("2d+int8") == pytest.approx(0.005) and made.network_s("2d+int8") == pytest.approx(0.01)
    assert (made.codec_s("topk"), made.network_s("topk")) == (None, None)
    assert (made.rate("topk"), made.step_s("topk"), made.efficiency("topk"), made.exposed_s("topk")) == (None,) * 4


def test_the_table_of_a_training_is_the_view_named_table(trained):
    assert render(trained, "table") == training.render_all(trained)


def test_before_the_first_method_there_is_no_table(trained):
    trained.training.runs.clear()
    assert training.footer(trained) == ""


def last_line(result):
    return next(line for line in training.footer(result).splitlines() if line.startswith("none")).split()


def test_unknown_parts_are_dashes_and_no_time_is_negative(trained):
    made = trained.training
    assert last_line(trained)[-4:] == ["-", "545.00", "553.43", "560.00"], "DDP as it is has no codec"
    for run in made.of("none"):
        run.steps_s, run.silent_s, run.seen = [0.5] * 4, [0.51] * 3, None
    assert last_line(trained)[-5:] == ["~0", "5.00", "~0", "553.43", "-"]
    assert "~0: less than can be measured" in training.footer(trained)
    assert "-0.0" not in training.footer(trained)
    made.hosts = 1
    assert last_line(trained)[-2:] == ["-", "-"], "nothing leaves a single host"
