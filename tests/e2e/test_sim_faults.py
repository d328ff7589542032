"""Faults of the sim engine by option: invalid ones are refused, others are named in findings."""

import json

import pytest

from busbw.cli.main import guarded

SIM = ("run", "all_reduce", "--engine", "sim", "-b", "4M", "-e", "4M")
SMALL = ("run", "all_reduce", "--engine", "sim", "-b", "64", "-e", "64")


@pytest.mark.parametrize("fault", ["late_rank", "slow_rank", "corrupt_rank"])
@pytest.mark.parametrize(("words", "ranks"), [(("-np", "4"), 4), ((), 8)])
def test_a_sim_fault_of_an_unknown_rank_is_refused(capsys, fault, words, ranks):
    assert guarded([*SMALL, *words, "--sim", f"{fault}={ranks}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: --sim: '{fault}={ranks}': there is no such rank among {ranks}\n" in err
    assert f"hint: give {fault} a number from 0 to {ranks - 1}" in err
    assert guarded([*SMALL, *words, "--sim", f"{fault}={ranks - 1}"]) == (
        1 if fault == "corrupt_rank" else 0
    )


@pytest.mark.parametrize("rank", [0, 2, 9])
def test_an_injected_fault_is_refused_with_the_parameter_of_sim(capsys, rank):
    assert guarded([*SMALL, "-np", "4", "--inject", f"late:rank={rank},us=200"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"hint: --sim late_rank={rank},late_us=200\n")


@pytest.mark.parametrize("more", ["noise=0", "noise=0.05", "noise=0,late_us=40"])
def test_a_late_rank_is_late_and_its_links_are_not_slow(tmp_path, more):
    assert (
        guarded(
            [*SIM, "-np", "4", "--sim", f"late_rank=2,{more}", "--json", str(tmp_path / "r.json")]
        )
        == 0
    )
    result = json.loads((tmp_path / "r.json").read_bytes())
    messages = {finding["id"]: finding["message"] for finding in result["findings"]}
    assert messages["late_rank"].startswith("rank 2 on sim is late")
    assert messages["links"].startswith("no slow link: 6 pairs")
    assert {
        tuple(sorted((link["a"], link["b"]))) for link in result["links"] if link["time_s"] < 25e-6
    } == {(0, 1), (0, 3), (1, 3)}
