"""GPUs under load: rates against the link, its generation, its changes, and reduced clocks, from
samples.
"""

import json
from pathlib import Path

import pytest
from loads import loaded, loading, reducing
from looking import found

from busbw.check.load import Loaded, longest_s
from busbw.check.load.all_reduce import CALL as REDUCED
from busbw.check.load.gpu_copies import CALL
from busbw.cli.main import main
from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
CHECKS = ("pcie-load-rate", "pcie-load-link", "pcie-load-transitions", "gpu-load-throttle")


def on_second(name, *changes):
    return [
        finding for finding in found(name, *changes, tree=loaded()) if finding.subject == "GPU 1"
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_without_a_load_nothing_is_judged(name):
    (finding,) = found(name)
    assert finding.verdict is SKIP and "busbw check --load" in finding.message


@pytest.mark.parametrize("name", CHECKS)
def test_load_that_failed_is_unknown_with_its_reason(name):
    (finding,) = found(
        name, lambda tree: tree.call(CALL, json.dumps({"reason": "no NVIDIA driver on this host"}))
    )
    assert finding.verdict is UNKNOWN and "no NVIDIA driver" in finding.message


@pytest.mark.parametrize(("rate", "verdict"), [(42.0e9, PASS), (41.9e9, WARN)])
def test_rate_at_two_thirds_of_the_link(rate, verdict):
    to_gpu, from_gpu = on_second("pcie-load-rate", loading(rate=rate))
    assert (to_gpu.verdict, from_gpu.verdict) == (verdict, PASS)


def test_rate_is_judged_by_the_link_as_it_ran():
    to_gpu, _ = on_second("pcie-load-rate", loading(rate=25e9, gen=4))
    assert (
        to_gpu.verdict is PASS
        and to_gpu.message == "25.00 GB/s to the GPU, 79% of the 31.5 GB/s of generation 4 x16"
    )


def test_low_generation_names_its_share_and_the_lowest():
    (finding,) = on_second("pcie-load-link", loading(gen=2))
    assert (
        finding.message
        == "below generation 5 x16 in 40 of 80 samples under load, down to generation 2 x16"
    )


def test_fewer_lanes_under_load():
    (finding,) = on_second("pcie-load-link", loading(width=8))
    assert finding.verdict is WARN and finding.message.endswith("generation 5 x8")


@pytest.mark.parametrize(
    ("first", "changes"), [(0, "1 change"), (20, "2 changes"), (39, "1 change")]
)
def test_changes_of_the_link_are_counted(first, changes):
    (finding,) = on_second("pcie-load-transitions", loading(first=first, gen=1))
    assert (
        finding.verdict is WARN
        and finding.message == f"{changes} of its link in 80 samples under load"
    )


def test_a_change_between_the_directions_is_not_one_under_load():
    (finding,) = on_second("pcie-load-transitions", loading(gen=4))
    assert finding.verdict is PASS


@pytest.mark.parametrize("name", CHECKS)
def test_samples_without_values_are_unknown(name):
    silent = {"gen": None, "width": None, "reasons": None}
    tree = loaded()
    load = json.loads(tree.calls[CALL]["text"])
    for copies in load["gpus"][1]["copies"]:
        copies["samples"] = [sample | silent for sample in copies["samples"]]
    tree.call(CALL, json.dumps(load))
    assert {
        finding.verdict for finding in found(name, tree=tree) if finding.subject == "GPU 1"
    } == {UNKNOWN}


@pytest.mark.parametrize(
    ("reasons", "first", "verdict"),
    [(0x40, 3, FAIL), (0x80, None, FAIL), (0x8, None, WARN), (0x4, None, PASS), (0x1, None, PASS)],
)
def test_reasons_for_reduced_clocks_under_load(reasons, first, verdict):
    (finding,) = on_second("gpu-load-throttle", loading(first=first, reasons=reasons))
    assert finding.verdict is verdict


def test_share_of_the_time_and_clocks_are_named():
    (finding,) = on_second("gpu-load-throttle", loading(reasons=0x80, sm_mhz=990))
    assert "for 50% of the time" in finding.message
    assert (
        finding.evidence[0].seen
        == "hw_power_brake_slowdown 50%; SM 990 to 1980 of 1980 MHz, 35 C, 160 W"
    )


@pytest.mark.parametrize("name", CHECKS[:3])
def test_gpu_that_is_joined_to_its_cpu_is_skipped(name):
    tree = loaded()
    load = json.loads(tree.calls[CALL]["text"])
    load["gpus"][1]["name"] = "NVIDIA GB200"
    tree.call(CALL, json.dumps(load))
    assert {
        finding.verdict for finding in found(name, tree=tree) if finding.subject == "GPU 1"
    } == {SKIP}


@pytest.mark.parametrize(
    ("change", "verdict", "text"),
    [
        (reducing("pass", "97 % of the published run"), PASS, "97 %"),
        (reducing("warn", "60 % of the published run"), WARN, "60 %"),
        (reducing("unknown", "busbw cannot be judged"), UNKNOWN, "cannot"),
        (reducing("fail", "4 wrong elements", 0), FAIL, "4 wrong elements"),
        (lambda tree: tree.call(REDUCED, '{"gpus": 1, "reason": "one GPU"}'), SKIP, "one GPU"),
        (lambda tree: tree.call(REDUCED, '{"gpus": 2, "reason": "no NCCL"}'), UNKNOWN, "no NCCL"),
    ],
)
def test_the_all_reduce_over_all_gpus_has_the_verdict_of_its_run(change, verdict, text):
    finding = found("nccl-load-all-reduce", change, tree=loaded())[0]
    assert finding.verdict is verdict and text in finding.message


def test_a_load_may_take_a_minute_and_both_directions_of_16_gpus():
    assert (longest_s(0), longest_s(10)) == (60, 60 + 2 * 16 * 10)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a machine without GPUs is needed")
@pytest.mark.usefixtures("ranks_are_forks")
def test_load_of_a_machine_without_gpus_gives_the_reason():
    answer = json.loads(Loaded(0.1).call(CALL, str).text)
    assert answer["gpus"] == [] and answer["reason"]
    answer = json.loads(Loaded(0.1).call(REDUCED, str).text)
    assert answer["findings"] == [] and answer["reason"]


@pytest.mark.parametrize("words", [("--hosts", "a,b"), ("--from", "node.jsonl")])
def test_load_is_for_this_machine(words, capsys):
    assert main(["busbw", "check", "--load", "1", *words]) == 2
    assert "--load is for this machine" in capsys.readouterr().err
