"""A plan for people."""

import msgspec

from busbw.views import planning
from busbw.views.registry import render


def test_the_whole_text(planned, golden):
    golden("training/plan_vgg16.txt", planning.render_all(planned))


def test_a_plan_that_was_kept_is_shown_as_it_came(planned):
    assert render(planned, "table") == planning.render_all(planned)


def test_columns_align_with_titles_for_long_method_names(planned):
    name = "2d+int4+last=powersgd+matrix_rank=16"
    planned.training.spec = msgspec.structs.replace(planned.training.spec, methods=("none", "int8", name))
    planned.plan.exchanges[2].method = name
    lines = planning.render_all(planned).splitlines()
    _, titles, *rows = lines[lines.index("") :][:6]
    assert titles.startswith("transport  method ")
    ends = {title: titles.index(title) + len(title) for title in ("MB sent", "exchange ms", "exposed ms", "step ms", "of alone")}
    assert [row[titles.index("method") :].split()[0] for row in rows] == ["none", "int8", name, "none"]
    assert all(row[end - 1] != " " and row[end] == " " for row in rows for end in ends.values())


def test_nothing_is_sent_from_a_single_host(planned):
    planned.training.hosts = 1
    assert planning.row(planned, planned.plan, planned.plan.exchanges[0]).split()[2] == "-"


def test_where_nothing_lossy_is_needed_it_says_so(planned):
    planned.plan.exchanges[3].bucket_s = [0.05, 0.005]
    text = planning.footer(planned)
    assert text.splitlines()[1:3] == [
        "nothing lossy is needed: none over sockets (NCCL's sockets on 16 channels, each with one thread and one socket)"
        ", expected to take 97.50 ms a step, 94.5 % of alone (wanted: 90 %)",
        "  export NCCL_MIN_NCHANNELS=16 NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1",
    ]
    planned.plan.exchanges[0].bucket_s = [0.05, 0.005]
    assert "  nothing to change: DistributedDataParallel as it is\n" in planning.footer(planned)


def test_where_nothing_reaches_the_target_it_says_that(planned):
    planned.plan.target = 0.999
    assert planning.footer(planned).startswith("\nnothing reaches 99.9 %; as good as fastest: torch-powersgd, ")


def test_what_broke_off_before_an_exchange_has_no_advice(planned):
    planned.plan.exchanges.clear()
    planned.errors.append("rank 1 died")
    assert planning.footer(planned) == "error: rank 1 died\n"
    planned.plan = None
    assert planning.render_all(planned).splitlines()[-1] == "error: rank 1 died"
