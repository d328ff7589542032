"""Faults of the sim engine as people ask for them: those that is invalid are refused, the others told as what they are."""

import json

import pytest

SIM = ("busbw", "run", "all_reduce", "--engine", "sim", "-b", "4M", "-e", "4M")


@pytest.mark.parametrize("fault", ["late_rank", "slow_rank", "corrupt_rank"])
@pytest.mark.parametrize(("words", "ranks"), [(("-n", "4"), 4), ((), 8)])
def test_a_sim_fault_of_an_unknown_rank_is_refused(run, fault, words, ranks):
    done = run(*SIM, *words, "--sim", f"{fault}={ranks}")
    assert (done.code, done.out) == (2, "")
    assert f"error: --sim: '{fault}={ranks}': there is no such rank among {ranks}\n" in done.err
    assert f"hint: give {fault} a number from 0 to {ranks - 1}" in done.err
    assert run(*SIM, *words, "--sim", f"{fault}={ranks - 1}").code == (1 if fault == "corrupt_rank" else 0)


@pytest.mark.parametrize("rank", [0, 2, 9])
def test_a_wrong_sim_parameter_lists_the_known_ones(run, rank):
    done = run(*SIM, "-n", "4", "--inject", f"late:rank={rank},us=200")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"hint: --sim late_rank={rank},late_us=200\n")


@pytest.mark.parametrize("more", ["noise=0", "noise=0.05", "noise=0,late_us=40"])
def test_a_late_rank_is_late_and_its_links_are_not_slow(run, tmp_path, more):
    assert run(*SIM, "-n", "4", "--sim", f"late_rank=2,{more}", "--json", "r.json").code == 0
    result = json.loads((tmp_path / "r.json").read_bytes())
    found = {finding["id"]: finding["message"] for finding in result["findings"]}
    assert found["late_rank"].startswith("rank 2 on sim is late")
    assert found["links"].startswith("no slow link: 6 pairs")
    assert {tuple(sorted((link["a"], link["b"]))) for link in result["links"] if link["time_s"] < 25e-6} == {(0, 1), (0, 3), (1, 3)}
