"""A plan for people."""

import msgspec
import pytest

from busbw.cli.terminal import COLUMNS
from busbw.report.registry import render
from busbw_accel.train import html, plan_text, recorded_text
from busbw_accel.train.plan_types import ExchangeRound, LocalExchange, MeasuredExchange


def test_the_whole_text(planned, golden):
    golden("training/plan_vgg16.txt", plan_text.render_all(planned, COLUMNS))


def test_a_saved_plan_is_shown_unchanged(planned):
    assert render(planned, "table") == plan_text.render_all(planned)


def test_columns_align_with_titles_for_long_method_names(planned):
    name = "2d+int4+last=powersgd+matrix_rank=16"
    planned.training.spec = msgspec.structs.replace(
        planned.training.spec, methods=("none", "int8", name)
    )
    planned.plan.exchanges[2].method = name
    lines = plan_text.render_all(planned).splitlines()
    _, titles, *rows = lines[lines.index("") :][:6]
    assert titles.startswith("transport  method ")
    ends = {
        title: titles.index(title) + len(title)
        for title in ("MB sent", "exchange ms", "exposed ms", "step ms", "of alone")
    }
    assert [row[titles.index("method") :].split()[0] for row in rows] == [
        "none",
        "int8",
        name,
        "none",
    ]
    assert all(row[end - 1] != " " and row[end] == " " for row in rows for end in ends.values())


def test_nothing_is_sent_from_a_single_host(planned):
    planned.training.hosts = 1
    assert plan_text.rows(planned, planned.plan).split()[2] == "-"


def test_a_plan_without_need_for_lossy_methods_states_it(planned):
    planned.plan.exchanges[3].bucket_s = [0.05, 0.005]
    text = plan_text.footer(planned)
    assert text.splitlines()[1:3] == [
        (
            "nothing lossy is needed: none over sockets (NCCL's sockets on 16 channels, each with"
            " one thread and one socket), expected to take 97.50 ms a step, 94.5 % of alone"
            " (wanted: 90 %)"
        ),
        "  export NCCL_MIN_NCHANNELS=16 NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1",
    ]
    planned.plan.exchanges[0].bucket_s = [0.05, 0.005]
    assert "  nothing to change: DistributedDataParallel as it is\n" in plan_text.footer(planned)


def test_a_target_that_nothing_reaches_is_reported(planned):
    planned.plan.target = 0.999
    assert plan_text.footer(planned).startswith("\nnothing reaches 99.9 %; best: torch-powersgd, ")


def test_a_plan_that_ended_before_an_exchange_has_no_advice(planned):
    planned.plan.exchanges.clear()
    planned.errors.append("rank 1 died")
    assert plan_text.footer(planned) == "error: rank 1 died\n"
    planned.plan = None
    assert plan_text.render_all(planned).splitlines()[-1] == "error: rank 1 died"


def test_a_plan_in_rounds_has_intervals_and_bucket_sizes(planned_in_rounds, golden):
    golden("training/plan_gpt_small.txt", plan_text.render_all(planned_in_rounds, COLUMNS))


def test_a_plan_for_a_recorded_training(planned_for_record, golden):
    golden("training/plan_recorded.txt", plan_text.render_all(planned_for_record, 80))


def test_a_record_without_times_has_exchanges_and_no_recommendation(planned_for_record):
    planned_for_record.recorded = msgspec.structs.replace(
        planned_for_record.recorded, step_s=None, waited_s=None
    )
    text = plan_text.render_all(planned_for_record, 80)
    assert "# what a step takes is unknown: the record has no times\n" in text
    assert "ready ms" not in text
    titles = next(line for line in text.splitlines() if line.startswith("method "))
    assert titles.split("  ")[0] == "method"
    assert titles.endswith("MB sent  exchange ms      loss, %")
    assert text.count("no recommendation: the record has no times, so that it is unknown") == 1


def test_rounds_that_differ_are_shares_of_what_the_table_names(planned_for_record):
    planned_for_record.plan.exchanges[1].rounds[0] = ExchangeRound([0.22, 0.29], [0.001, 0.001])
    text = plan_text.footer(planned_for_record)
    assert "rounds differ too much: none, 4 MB buckets is between " in text
    assert " % of a perfect network\n" in text


def test_what_a_recorded_training_has_besides_is_noted(planned_for_record):
    buckets = [
        msgspec.structs.replace(bucket, shapes=[]) for bucket in planned_for_record.recorded.buckets
    ]
    planned_for_record.recorded = msgspec.structs.replace(
        planned_for_record.recorded, buckets=buckets, hook="bf16_compress_hook", ranks=8
    )
    text = plan_text.render_all(planned_for_record)
    assert "note: the exchanges are those of 2 ranks; the step is that of 8\n" in text
    assert "note: the training has the communication hook bf16_compress_hook: leave" in text
    assert "note: the shapes of parameters are unknown: powersgd is measured on" in text


@pytest.mark.parametrize(
    ("exchange", "lines"),
    [
        (
            MeasuredExchange("as-is", "none", 0, []),
            ["nothing to change: DistributedDataParallel as it is"],
        ),
        (
            MeasuredExchange("tree", "none", 0, []),
            ["before its start: export NCCL_ALGO=allreduce:tree"],
        ),
        (
            MeasuredExchange("tree", "none", 0, [], code="model = ...", bucket_mb=4.0),
            [
                "before its start: export NCCL_ALGO=allreduce:tree",
                "model = DistributedDataParallel(model, bucket_cap_mb=4, ...)",
            ],
        ),
        (
            MeasuredExchange("as-is", "int8", 2, [], code="busbw_accel.attach(model)"),
            [
                "import busbw_accel",
                "# after model = DistributedDataParallel(model, ...)",
                "busbw_accel.attach(model)",
            ],
        ),
        (
            MeasuredExchange(
                "as-is", "torch-bf16", 1, [], code="model.register_comm_hook(None, hook)"
            ),
            ["model.register_comm_hook(None, hook)"],
        ),
    ],
    ids=lambda value: value.method if isinstance(value, MeasuredExchange) else "",
)
def test_what_to_put_into_a_recorded_training(exchange, lines):
    assert recorded_text.lines(exchange) == lines


def test_an_interrupted_plan_or_training_says_how_far_it_came(planned, trained):
    assert (planned.measured, trained.measured) == (4, 6)
    assert trained.reached() == ", after the method 2d+int8"
    assert planned.reached() == ", before the first method was done"
    planned.plan = None
    assert planned.measured == 0


def test_figures_that_contradict_each_other_allow_no_recommendation(planned_in_rounds):
    """Four emulated hosts on two cores: 1596 ms alone, 172 on a perfect network."""
    plan = planned_in_rounds.plan
    plan.runs[0].alone_s[:] = [1.590, 1.602]
    alone_text = (
        "a step alone 1596.00 ms (1519.76 to 1672.24), more than a step on a perfect network"
    )
    assert plan_text.footer(planned_in_rounds).splitlines() == [
        (
            "checked: none, 4 MB buckets over as-is: 524.50 +-19.06 ms predicted, 522.00 +-25.41 ms"
            " measured (+0.5 %)"
        ),
        "",
        "no recommendation: figures contradict each other:",
        f"  {alone_text} 151.00 ms (138.29 to 163.71)",
        f"  {alone_text} with 4 MB buckets 151.50 ms (145.15 to 157.85)",
        (
            "hint: 2 ranks share 1 core: start at most one for each core, or measure for longer:"
            " --rounds 4"
        ),
    ]


def test_rounds_that_differ_too_much_allow_no_recommendation(planned_in_rounds):
    plan = planned_in_rounds.plan
    plan.exchanges[1].checks.clear()
    plan.exchanges[1].checked_s = None
    plan.exchanges[1].rounds[0] = ExchangeRound([0.22, 0.29], [0.001, 0.001])
    assert plan_text.footer(planned_in_rounds).splitlines() == [
        "",
        (
            "no recommendation: rounds differ too much: none, 4 MB buckets is between 8.9 and 74.2"
            " % of alone"
        ),
        (
            "hint: 2 ranks share 1 core: start at most one for each core, or measure for longer:"
            " --rounds 4"
        ),
    ]


def test_lossless_buckets_come_before_a_lossy_method(planned_in_rounds):
    plan = planned_in_rounds.plan
    plan.target = 0.278
    text = plan_text.footer(planned_in_rounds)
    assert text.startswith(
        "\n"
        "nothing lossy is needed: none, 4 MB buckets, which took 522.00 +-25.41 ms a step, 27.9 %"
        " +-0.1 of alone, "
    )
    assert (
        "  model = DistributedDataParallel(model, bucket_cap_mb=4)\n"
        "  in busbw train: --bucket-mb 4\n" in text
    )
    plan.target = 0.282  # bf16 reaches it, but is not seen to be faster
    assert plan_text.footer(planned_in_rounds).startswith(
        "\nnothing is seen to be faster in reaching 28.2 %: none, 4 MB buckets, "
    )
    assert "\nno difference seen: bf16, 101.5 % (93.5 to 110.2) of its rate\n" in plan_text.footer(
        planned_in_rounds
    )


def test_a_method_without_a_record_has_no_loss(planned):
    planned.plan.exchanges[1].method = "2d+int8"
    planned.plan.exchanges[2].method = "powersgd+host"
    cells = [row.split()[-2:] for row in plan_text.rows(planned, planned.plan, 80).splitlines()]
    assert cells == [["%", "0"], ["%", "-"], ["+15.8", "+-1.4"], ["%", "0"]]


def test_a_plan_as_if_the_network_were_another(planned):
    planned.plan.as_if = ["2x", "1Gbit/s"]
    text = render(planned, "table", 80)
    twice = text[text.index("as if the network were 2x as fast") :].splitlines()
    assert twice[0] == (
        "as if the network were 2x as fast, predicted and not measured; an exchange here"
        " left a host with up to 24.6 Gbit/s over as-is, 24.9 Gbit/s over sockets:"
    )
    # torch's PowerSGD does not count its bytes
    assert [line.split()[:2] for line in twice[2:5]] == [
        ["as-is", "none"],
        ["as-is", "int8"],
        ["sockets", "none"],
    ]
    assert "\nas if the network carried 1 Gbit/s, predicted and not measured; " in text
    planned.plan.exchanges[:] = [planned.plan.exchanges[2]]
    assert plan_text.as_if(planned, planned.plan, "2x") == (
        "\nas if the network were 2x as fast: unknown, since nothing leaves a host\n"
    )


def test_the_report_draws_each_recommended_method_over_the_bandwidth(planned):
    drawn = [part for part in html.plan(planned) if part.get("class") == "plots"]
    (figure,) = drawn
    text = "".join(figure.itertext())
    assert "Which method at which bandwidth, predicted" in text
    wide = figure.find(".//svg[@class='plot wide']")
    labels = [label.text for label in wide.iterfind(".//g/text[@class='words']")]
    assert labels == ["target 90 %", "none", "int8"]
    assert len(wide.findall(".//path[@class='line']")) == 2
    for exchange in planned.plan.exchanges:
        exchange.counted = 0.0  # as on one host
    assert not [part for part in html.plan(planned) if part.get("class") == "plots"]


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("int8+every=30", "the loss of a small language model was 11.9 +-1.2 % above plain DDP's"),
        ("int8+every=31", "what it costs in loss is not recorded"),
    ],
)
def test_local_steps_are_recommended_with_what_they_cost(planned, name, cost):
    plan = planned.plan
    none = plan.exchanges[0]
    nothing = [0.0] * len(none.bucket_s)
    plan.exchanges = [MeasuredExchange("as-is", name, 6, nothing, local=LocalExchange(30))]
    text = plan_text.advice(planned)
    assert f"the least lossy that reaches 90 %: {name}, " in text
    assert f"ranks train by themselves: {cost}" in text
    assert "begin with plain DDP and attach after a third of the steps" in text
