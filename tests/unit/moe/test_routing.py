"""Routing: its text, its files, and what is drawn."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.moe.draws import as_array, digest, draw
from busbw.moe.routing import (
    FILE,
    HOT,
    UNIFORM,
    ZIPF,
    Routing,
    check_shape,
    parse_routing,
    read_ids,
    tokens_of_file,
)

ROUTINGS = st.one_of(
    st.just(Routing(UNIFORM)),
    st.floats(0, 3).map(lambda value: Routing(ZIPF, value)),
    st.floats(0, 1).map(lambda value: Routing(HOT, value)),
)


@pytest.mark.parametrize(
    ("text", "routing"),
    [
        ("uniform", Routing(UNIFORM)),
        ("zipf:1.0", Routing(ZIPF, 1.0)),
        ("hot:0.3", Routing(HOT, 0.3)),
        ("file:a:b.csv", Routing(FILE, path="a:b.csv")),
    ],
)
def test_text_names_a_routing(text: str, routing: Routing) -> None:
    assert parse_routing(text) == routing


@pytest.mark.parametrize(
    "text", ["", "zipf", "zipf:", "zipf:-1", "zipf:nan", "zipf:11", "hot:1.5", "file:", "even"]
)
def test_other_text_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="--routing") as caught:
        parse_routing(text)
    assert "--routing zipf:1.0" in caught.value.hint


@given(ROUTINGS, st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 20), st.data())
def test_choices_of_a_token_differ_and_are_experts(
    routing: Routing, seed: int, ranks: int, tokens: int, data: st.DataObject
) -> None:
    experts = data.draw(st.integers(2, 24))
    top_k = data.draw(st.integers(1, experts - 1))
    ids = draw(routing, seed, ranks, tokens, experts, top_k)
    assert ids.shape == (ranks, tokens, top_k)
    assert ids.min() >= 0
    assert ids.max() < experts
    assert all(len(set(token)) == top_k for token in ids.reshape(-1, top_k).tolist())


@given(ROUTINGS, st.integers(0, 2**32))
def test_token_chooses_the_same_in_a_larger_batch(routing: Routing, seed: int) -> None:
    small, large = (draw(routing, seed, ranks, n, 16, 4) for ranks, n in ((2, 5), (3, 40)))
    assert (small == large[:2, :5]).all()
    assert digest(small) == digest(large[:2, :5].copy())


def test_seeds_and_ranks_choose_differently() -> None:
    uniform = Routing(UNIFORM)
    ids = draw(uniform, 1, 2, 50, 64, 8)
    assert (ids[0] != ids[1]).any()
    assert (ids != draw(uniform, 2, 2, 50, 64, 8)).any()


def _shares(routing: Routing, top_k: int, seed: int = 3) -> np.ndarray:
    """The part of tokens that choose each of 16 experts."""
    ids = draw(routing, seed, 4, 2000, 16, top_k)
    return np.bincount(ids.ravel(), minlength=16) / 8000


def test_uniform_chooses_all_alike() -> None:
    assert _shares(Routing(UNIFORM), 4) == pytest.approx(np.full(16, 0.25), abs=0.025)


def test_hot_is_the_share_of_tokens_that_choose_expert_0() -> None:
    shares = _shares(Routing(HOT, 0.3), 2)
    assert shares[0] == pytest.approx(0.3, abs=0.025)
    assert shares[1:] == pytest.approx(np.full(15, 1.7 / 15), abs=0.02)


def test_zipf_of_one_choice_follows_the_power_law_in_some_order() -> None:
    shares = np.sort(_shares(Routing(ZIPF, 1.0), 1))[::-1]
    law = 1 / np.arange(1, 17)
    assert shares == pytest.approx(law / law.sum(), abs=0.02)
    most_popular = {int(np.argmax(_shares(Routing(ZIPF, 1.0), 1, seed))) for seed in range(8)}
    assert len(most_popular) > 3, "popular experts are scattered by the seed"


def test_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="--top-k 9: there are only 8 experts"):
        check_shape(Routing(UNIFORM), 8, 9)
    with pytest.raises(UsageError, match="every token chooses all 8 experts"):
        check_shape(Routing(HOT, 0.5), 8, 8)
    check_shape(Routing(UNIFORM), 8, 8)


GOOD = [[0, 1], [3, 2], [1, 0], [2, 3]]


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n3,2\n\n1, 0\r\n2,3\n",
        "[0, 1]\n[3, 2]\n[1, 0]\n[2, 3]\n",
        "[[0, 1], [3, 2],\n [1, 0], [2, 3]]",
    ],
)
def test_file_has_ids_in_three_forms(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ids"
    file.write_text(text)
    assert read_ids(str(file), 4, 2) == GOOD
    assert as_array(GOOD, 2).tolist() == [GOOD[:2], GOOD[2:]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n2,-1\n", "line 2: '-1' is not the id of an expert, 0 to 3"),
        ("0,1\n\nnan,1\n", "line 3: 'nan' is not the id"),
        ("0,4\n", "line 1: '4' is not the id"),
        ("0,1.5\n", "line 1: '1.5' is not the id"),
        ("0,\n", "line 1: '' is not the id"),
        ("1,1\n", "line 1: expert 1 is given twice"),
        ("0,1\n0,1,2\n", "line 2 has 3 ids, and --top-k is 2"),
        ("0 1\n", "line 1: '0 1' is not the id of an expert"),
        ("[[[0,1],[2,3]]]", "entry 1: '[0, 1]' is not the id of an expert"),
        ("[[0,1],[0,true]]", "entry 2: 'True' is not the id"),
        ("[[0,1],[NaN,1]]", "entry 2: 'nan' is not the id"),
        ("[[0,1],3]", "entry 2 has 1 id, and"),
        ("[[0,1],", "Expecting value"),
        ("\n", "it has no tokens"),
    ],
)
def test_wrong_file_is_refused_by_name_and_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_ids(str(file), 4, 2)
    assert str(caught.value).startswith(f"--routing file:{file}")
    assert message in str(caught.value)
    assert caught.value.hint


def test_hint_for_an_id_beyond_the_experts_is_another_number_of_experts(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("0,4\n")
    with pytest.raises(UsageError) as caught:
        read_ids(str(file), 4, 2)
    assert caught.value.hint == "give the --experts that the file was written for"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: No such file"):
        read_ids(str(tmp_path / "none.csv"), 4, 2)


def test_tokens_of_a_file_must_fit_the_ranks() -> None:
    assert tokens_of_file("f", 8, 2, None) == 4
    assert tokens_of_file("f", 8, 2, 4) == 4
    with pytest.raises(UsageError, match="8 tokens cannot be divided between 3 ranks"):
        tokens_of_file("f", 8, 3, None)
    with pytest.raises(UsageError, match="has 8 tokens, but 2 ranks with 5 tokens each have 10"):
        tokens_of_file("f", 8, 2, 5)
