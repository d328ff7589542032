"""A table of embedding rows compared with a dictionary in fp64, in plain torch;
test_embedding_kernels.py compares the kernels with it.
"""

import math
import resource
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from busbw.core.errors import NoMeasurement, UsageError  # noqa: E402
from busbw_accel.embedding import index, store  # noqa: E402
from busbw_accel.embedding.optimizers import initial  # noqa: E402
from busbw_accel.embedding.settings import OPTIMIZERS  # noqa: E402
from busbw_accel.embedding.table import EmbeddingTable, TableSettings  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
LEAST, MOST = -(1 << 63), (1 << 63) - 1
DIM = 6  # no multiple of 4
IDS = st.sampled_from([LEAST, LEAST + 1, MOST, *range(-5, 20)])
SEED = 3


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SEGMENT_ROWS", 4)


def table_of(**settings: object) -> EmbeddingTable:
    return EmbeddingTable(
        DIM, TableSettings(**{"initial": 4, "seed": SEED, "lr": 0.1, **settings}), CPU
    )


def ids_of(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64)


def contents(table: EmbeddingTable) -> dict[int, torch.Tensor]:
    """The rows by id."""
    rows_by_id: dict[int, torch.Tensor] = {}
    for chunk in table.export(3):
        rows_by_id |= dict(zip(chunk["ids"].tolist(), chunk["rows"], strict=True))
    return rows_by_id


def scores(table: EmbeddingTable) -> dict[int, int]:
    scores_by_id: dict[int, int] = {}
    for chunk in table.export(3):
        scores_by_id |= dict(zip(chunk["ids"].tolist(), chunk["score"].tolist(), strict=True))
    return scores_by_id


def first_values(row_id: int) -> torch.Tensor:
    return initial(ids_of(row_id), DIM, "uniform", 0.05, SEED)[0].double()


@dataclass
class Reference:
    """The rows and states by id in fp64, and the lookups of ids without a row."""

    optimizer: str
    rows: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    lookups: dict[int, int] = field(default_factory=dict)
    step: int = 0

    def update(self, ids: list[int], gradients: torch.Tensor) -> None:
        self.step += 1
        sums: dict[int, torch.Tensor] = {}
        for row_id, gradient in zip(ids, gradients.double(), strict=True):
            sums[row_id] = sums.get(row_id, 0) + gradient
        for row_id in sums.keys() & self.rows.keys():
            self.rows[row_id] = self.changed(*self.rows[row_id], sums[row_id])

    def changed(self, weight, moment, square, gradient) -> list[torch.Tensor]:
        energy = gradient**2 if self.optimizer == "adam" else (gradient**2).mean()
        if self.optimizer == "sgd":
            return [weight - 0.1 * gradient, moment, square]
        if self.optimizer == "rowwise_adagrad":
            return [
                weight - 0.1 * gradient / ((square + energy).sqrt() + 1e-8),
                moment,
                square + energy,
            ]
        moment, square = 0.9 * moment + 0.1 * gradient, 0.999 * square + 0.001 * energy
        root = (square / (1 - 0.999**self.step)).sqrt() + 1e-8
        return [weight - 0.1 * moment / (1 - 0.9**self.step) / root, moment, square]

    def follow(self, stored: set[int]) -> None:
        """Take over which ids have rows."""
        for row_id in self.rows.keys() - stored:
            del self.rows[row_id]
        for row_id in stored - self.rows.keys():
            self.rows[row_id] = [
                first_values(row_id),
                torch.zeros(DIM, dtype=torch.float64),
                torch.zeros(DIM, dtype=torch.float64),
            ]

    def values(self, ids: list[int]) -> torch.Tensor:
        return torch.stack(
            [
                self.rows[row_id][0] if row_id in self.rows else first_values(row_id)
                for row_id in ids
            ]
        )

    def check(self, table: EmbeddingTable) -> None:
        stored_rows = contents(table)
        assert stored_rows.keys() == self.rows.keys() and len(table) == len(stored_rows)
        for row_id, row in stored_rows.items():
            assert torch.allclose(row.double(), self.rows[row_id][0], rtol=1e-4, atol=1e-5), row_id


@given(
    optimizer=st.sampled_from(OPTIMIZERS),
    admission=st.integers(1, 3),
    capacity=st.sampled_from([None, 5, 9]),
    eviction=st.sampled_from(["none", "lru", "lfu"]),
    steps=st.lists(st.lists(IDS, max_size=12), max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_any_sequence_gives_the_rows_of_the_dictionary(
    optimizer, admission, capacity, eviction, steps
):
    eviction = eviction if capacity else "none"
    with pytest.MonkeyPatch.context() as patch:
        # many new indexes, or none that forgets lookups
        patch.setattr(index, "MIN_SLOTS", 16 if admission == 1 else 256)
        table = table_of(
            optimizer=optimizer, admission=admission, capacity=capacity, eviction=eviction
        )
    reference, random = Reference(optimizer), torch.Generator().manual_seed(0)
    for ids in steps:
        before, counted, old_scores = set(reference.rows), table.counters, scores(table)
        values, handle = table.lookup(ids_of(*ids))
        stored, counters = set(contents(table)), table.counters
        for row_id in ids:
            reference.lookups[row_id] = reference.lookups.get(row_id, 0) + (row_id not in before)
        admitted = {
            row_id for row_id in set(ids) - before if reference.lookups[row_id] >= admission
        }
        new, evicted = stored - before, before - stored
        assert new <= admitted
        assert counters.inserted - counted.inserted == len(new)
        assert counters.evicted - counted.evicted == len(evicted)
        assert counters.refused - counted.refused == len(admitted - new)
        assert counters.not_admitted - counted.not_admitted == len(set(ids) - before - admitted)
        assert len(stored) <= (capacity or math.inf)
        if admitted - new:
            assert len(stored) == capacity
        if evicted:
            assert not evicted & set(ids)
            assert max(old_scores[row_id] for row_id in evicted) <= min(
                [old_scores[row_id] for row_id in before - evicted - set(ids)], default=math.inf
            )
        for row_id in new | evicted:
            reference.lookups.pop(row_id, None)
        reference.follow(stored)
        assert torch.allclose(
            values.double(), reference.values(ids) if ids else values.double(), rtol=1e-4, atol=1e-5
        )
        gradients = torch.randn(len(ids), DIM, generator=random)
        table.apply(handle, gradients)
        reference.update(ids, gradients)
        reference.check(table)
    reloaded = table_of(optimizer=optimizer)
    for chunk in table.export(4):
        reloaded.load(chunk)
    reloaded.step = table.step
    if steps:
        gradients = torch.randn(len(steps[0]), DIM, generator=random)
        reloaded.update(ids_of(*steps[0]), gradients)  # with the states that were loaded
        reference.update(steps[0], gradients)
    reference.check(reloaded)


def test_initial_values_depend_on_the_seed_and_the_id_alone():
    ids = ids_of(LEAST, -1, 0, 1, MOST)
    table, after = table_of(), table_of(init="normal", init_scale=2.0)
    together = table.rows(ids)
    assert torch.equal(
        together, torch.cat([table_of().rows(row_id[None]) for row_id in ids.flip(0)]).flip(0)
    )
    assert torch.equal(together, table_of().rows(ids, train=False))
    assert not torch.equal(together, table_of(seed=4).rows(ids))
    assert len(together.unique()) == together.numel() and float(together.abs().max()) < 0.05
    rows = after.rows(torch.arange(3000), train=False)
    assert abs(float(rows.mean())) < 0.1 and abs(float(rows.std()) - 2) < 0.1
    assert not bool(table_of(init="zeros").rows(ids).any())
    assert after.counters.absent == 3000 and len(after) == 0


@pytest.mark.parametrize(
    ("decay", "torch_optimizer"), [(0.0, torch.optim.Adam), (0.3, torch.optim.AdamW)]
)
def test_adam_matches_torch_where_every_row_is_updated(decay, torch_optimizer):
    table, random = table_of(weight_decay=decay), torch.Generator().manual_seed(1)
    rows = torch.nn.Parameter(table.rows(torch.arange(8)))
    optimizer = torch_optimizer([rows], lr=0.1, weight_decay=decay)
    for _ in range(4):
        rows.grad = torch.randn(8, DIM, generator=random)
        optimizer.step()
        table.update(torch.arange(8), rows.grad)
    assert torch.allclose(table.rows(torch.arange(8)), rows.detach(), rtol=1e-5, atol=1e-6)


def test_weights_decay_only_in_rows_that_are_updated():
    table = table_of(optimizer="sgd", weight_decay=0.5)
    before = table.rows(ids_of(1, 2))
    table.update(ids_of(1, 3), torch.zeros(2, DIM), lr=1.0)
    assert torch.allclose(table.rows(ids_of(1, 2)), before * torch.tensor([[0.5], [1.0]]))
    assert table.counters.skipped == 1 and len(table) == 2


def test_an_index_that_is_full_of_ids_without_rows_keeps_those_with_more_lookups():
    table = table_of(admission=3)
    for first in range(0, 600, 20):
        table.rows(torch.cat([torch.arange(first, first + 20), ids_of(1 << 40)]))
    assert contents(table).keys() == {1 << 40}
    assert table._parts.index.slots == index.MIN_SLOTS
    assert table.counters.forgotten > 400
    assert table.counters.not_admitted == 602


def test_marks_start_again_before_they_overflow():
    table = table_of(optimizer="sgd")
    table.rows(ids_of(1, 2))
    table._epoch = (1 << 31) - 3
    for _ in range(3):
        before = table.rows(ids_of(2, 3))
        table.apply(table.lookup(ids_of(2, 3, 2))[1], torch.ones(3, DIM), lr=1.0)
        assert torch.equal(table.rows(ids_of(2, 3)), before - torch.tensor([[2.0], [1.0]]))


def test_an_eviction_between_lookup_and_update_does_not_hit_other_rows():
    table = table_of(optimizer="sgd", capacity=2, eviction="lru")
    _, handle = table.lookup(ids_of(1, 2))
    rows_before = table.rows(ids_of(3, 4))
    table.apply(handle, torch.ones(2, DIM))
    assert torch.equal(table.rows(ids_of(3, 4)), rows_before)
    assert table.counters.skipped == 2


@pytest.mark.parametrize("capacity", [10, 64])
def test_of_more_rows_than_the_capacity_those_with_high_scores_are_loaded(capacity):
    table = table_of(eviction="lfu", capacity=200)
    table.rows(torch.arange(200))
    chunk = dict(next(iter(table.export(200))))
    chunk["score"] = torch.randperm(200, generator=torch.Generator().manual_seed(0)).int()
    small = table_of(eviction="lfu", capacity=capacity)
    small.load(chunk)
    loaded_scores = scores(small)
    assert len(loaded_scores) == capacity and small.counters.refused == 0
    assert loaded_scores == {row_id: int(chunk["score"][row_id]) for row_id in loaded_scores}
    assert all(torch.equal(row, chunk["rows"][row_id]) for row_id, row in contents(small).items())
    assert sum(score >= 200 - capacity for score in loaded_scores.values()) > 0.9 * capacity - 1


def test_rows_never_move_and_growth_is_small():
    table = table_of()
    table.rows(torch.arange(4))
    first = table._parts.store.blocks[0]
    table.rows(torch.arange(300))
    assert table._parts.store.blocks[0] is first
    assert len(table) == 300 and table._parts.store.rows <= 1.1 * 300


@pytest.mark.parametrize("eviction", ["none", "lru"])
def test_a_full_table_refuses_or_raises(eviction):
    table = table_of(capacity=4, strict=True, eviction=eviction)
    rows_before = table.rows(torch.arange(4))
    with pytest.raises(UsageError, match="capacity of 2"):
        table_of(capacity=2).load(next(iter(table.export(4))))
    with pytest.raises(
        UsageError,
        match=(
            rf"6 new ids for {4 if eviction == 'lru' else 0} free rows of a table with a capacity"
            r" of 4 rows"
        ),
    ):
        table.rows(torch.arange(10, 16))
    assert table.counters.refused == 0
    assert eviction == "lru" or torch.equal(table.rows(torch.arange(4)), rows_before)


@pytest.mark.parametrize("strict", [False, True])
def test_gradients_that_are_not_finite_change_nothing_and_are_reported(strict):
    table = table_of(strict=strict)
    before, handle = table.lookup(ids_of(1, 2, 3))
    table.apply(handle, torch.tensor([[math.nan], [1.0], [math.inf]]).expand(3, DIM))
    assert table.counters.not_finite == 2
    if strict:
        with pytest.raises(UsageError, match="2 rows of a table were NaN or infinite"):
            table.rows(ids_of(1))
    after = table.rows(ids_of(1, 2, 3))
    assert torch.equal(after[[0, 2]], before[[0, 2]]) and not torch.equal(after[1], before[1])


def test_without_memory_growth_fails_and_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(store, "SEGMENT_ROWS", 1)
    table = EmbeddingTable(1 << 22, TableSettings(initial=1, optimizer="sgd"), CPU)
    rows_before = table.rows(ids_of(7))
    # Some machines promise any memory (vm.overcommit_memory=1).
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 40), limits[1]))
    try:
        with pytest.raises(
            NoMeasurement,
            match=(
                r"no memory for 99999 more rows \(1677704822784 B\) of a table with 1"
                r" \(16777216 B\)"
            ),
        ):
            table.rows(torch.arange(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert torch.equal(table.rows(ids_of(7)), rows_before) and len(table) == 1


def test_bad_input_is_named():
    table = table_of()
    for ids, message in (
        (torch.arange(3).int(), "torch.int32"),
        (torch.zeros(2, 2).long(), r"\[2, 2\]"),
        (torch.arange(6)[::2], "not contiguous"),
    ):
        with pytest.raises(UsageError, match=message):
            table.rows(ids)
    _, handle = table.lookup(ids_of(1, 2))
    for gradients in (torch.zeros(2, DIM + 1), torch.zeros(2, DIM).double()):
        with pytest.raises(UsageError, match="gradients are"):
            table.apply(handle, gradients)
    chunk = dict(next(iter(table.export(9))))
    for change, message in (
        ({"ids": ids_of(1, 1)}, "2 ids of a chunk with 1"),
        ({"rows": torch.zeros(2, 1)}, "'rows' of a chunk is"),
    ):
        with pytest.raises(UsageError, match=message):
            table_of().load(chunk | change)
    del chunk["moment"]
    with pytest.raises(UsageError, match="'moment' of a chunk is missing"):
        table_of().load(chunk)


@pytest.mark.parametrize(
    "setting",
    [
        {"optimizer": "lamb"},
        {"capacity": 0},
        {"initial": 0},
        {"admission": 0},
        {"lr": math.nan},
        {"eps": -1.0},
        {"betas": (0.9, 1.0)},
        {"eviction": "lru"},
        {"init": "ones"},
        {"capacity": 1 << 40},
        {"gpu_bytes": 0},
        {"host_bytes": 1},
    ],
)
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(UsageError, match=next(iter(setting))):
        TableSettings(**setting)


def test_rows_in_host_memory_need_a_gpu():
    with pytest.raises(UsageError, match="gpu_bytes is 960, and there are no kernels for cpu"):
        table_of(gpu_bytes=960)
