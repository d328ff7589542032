"""A table with kernels compared with one in plain torch; see test_kernels.py for where kernels
run.
"""

import math
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
if DEVICE.type == "cpu" and Path("/dev/nvidiactl").exists():  # as the root's conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw.core.errors import BusbwError, NoMeasurement  # noqa: E402
from busbw_accel.embedding import index, kernels, store, torch_steps  # noqa: E402
from busbw_accel.embedding import table as tables  # noqa: E402
from busbw_accel.embedding.kernels import find, place, promote, steps, update  # noqa: E402
from busbw_accel.embedding.optimizers import initial, layout  # noqa: E402
from busbw_accel.embedding.settings import INITS, OPTIMIZERS  # noqa: E402
from busbw_accel.embedding.table import EmbeddingTable, TableSettings  # noqa: E402

os.environ.pop("TRITON_INTERPRET", None)
pytestmark = pytest.mark.torch
LEAST, MOST = -(1 << 63), (1 << 63) - 1
DIM = 6  # no multiple of 4


@pytest.fixture(autouse=True)
def use_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(store, "SEGMENT_ROWS", 4)
    monkeypatch.setattr(index, "MIN_SLOTS", 16)
    monkeypatch.setattr(place, "CUT", 4)  # so that groups have several parts
    for module in (find, place, promote):
        monkeypatch.setattr(module, "BLOCK", 32)
    for name in ("READ", "UPDATE", "SWAP"):  # larger tiles: the interpreter's time is by program
        monkeypatch.setattr(steps, name, (32, 4))


def make_table(
    monkeypatch: pytest.MonkeyPatch, means: object, dim: int = DIM, **settings: object
) -> EmbeddingTable:
    """A table with kernels (steps) or without (plain)."""
    monkeypatch.setattr(tables, "_steps_for", lambda _: means)
    return EmbeddingTable(dim, TableSettings(**{"initial": 4, "lr": 0.1, **settings}), DEVICE)


def in_host_memory(near: int, far: int, dim: int = DIM, **settings: object) -> dict[str, object]:
    """Settings of a table with so many rows on the GPU and in host memory."""
    record = layout(TableSettings(optimizer=str(settings.get("optimizer", "adam"))), dim).nbytes
    return {"gpu_bytes": near * record, "host_bytes": far * record, **settings}


def make_both_tables(
    monkeypatch: pytest.MonkeyPatch, dim: int = DIM, **settings: object
) -> tuple[EmbeddingTable, EmbeddingTable]:
    return make_table(monkeypatch, steps, dim, **settings), make_table(
        monkeypatch, torch_steps, dim, **settings
    )


def batches(count: int, seed: int = 0, limit: int = 30) -> list[torch.Tensor]:
    """Ids with extremes and with large groups."""
    random = torch.Generator().manual_seed(seed)
    drawn_ids = []
    for turn in range(count):
        ids = torch.cat(
            [
                torch.randint(-limit, limit, (36,), generator=random) + 5 * turn,
                torch.full((12,), 7),
                torch.tensor([LEAST, MOST, LEAST]),
            ]
        )
        drawn_ids.append(ids[torch.randperm(len(ids), generator=random)].to(DEVICE))
    return drawn_ids


def gradients(ids: torch.Tensor, seed: int, dim: int = DIM) -> torch.Tensor:
    return torch.randn(len(ids), dim, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def chunk_of(table: EmbeddingTable) -> dict[str, torch.Tensor]:
    return dict(next(iter(table.export(1000))))


def alike(first: EmbeddingTable, other: EmbeddingTable) -> bool:
    chunk, expected = chunk_of(first), chunk_of(other)
    assert replace(first.counters, promoted=0, demoted=0, in_place=0) == other.counters
    assert chunk.keys() == expected.keys()
    return all(
        torch.allclose(chunk[name].double(), expected[name].double(), rtol=1e-4, atol=1e-5)
        for name in expected
    )


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("sgd", {"capacity": 32, "eviction": "lru", "init": "normal", "weight_decay": 0.1}),
        ("adam", {"admission": 2}),
        ("rowwise_adam", {"capacity": 32, "eviction": "lfu"}),
        ("rowwise_adagrad", {"deterministic": True, "init": "zeros"}),
    ],
)
def test_any_table_has_the_rows_and_counts_of_plain_torch(monkeypatch, optimizer, settings):
    # else lookups so far may be forgotten
    monkeypatch.setattr(index, "MIN_SLOTS", 1024 if "admission" in settings else 16)
    table_of_kernels, torch_table = make_both_tables(monkeypatch, optimizer=optimizer, **settings)
    for turn, ids in enumerate(batches(2)):
        for table in (table_of_kernels, torch_table):
            table.apply(table.lookup(ids)[1], gradients(ids, turn))
    assert alike(table_of_kernels, torch_table)
    if "eviction" in settings:
        assert table_of_kernels.counters.evicted > 0
    other = batches(1, seed=9, limit=100)[0]
    assert torch.allclose(
        table_of_kernels.rows(other, train=False),
        torch_table.rows(other, train=False),
        rtol=1e-4,
        atol=1e-5,
    )
    for table in (table_of_kernels, torch_table):
        table.update(other, gradients(other, 9))
    assert alike(table_of_kernels, torch_table) and table_of_kernels.counters.skipped > 0


def test_chunks_load_into_a_table_with_kernels(monkeypatch):
    table_of_kernels, torch_table = make_both_tables(monkeypatch, optimizer="rowwise_adam", dim=5)
    ids = batches(1)[0]
    torch_table.apply(torch_table.lookup(ids)[1], gradients(ids, 0, 5))
    for chunk in torch_table.export(7):
        table_of_kernels.load(chunk)
    table_of_kernels.step = torch_table.step
    for table in (table_of_kernels, torch_table):
        table.update(ids, gradients(ids, 1, 5))
    assert all(
        torch.allclose(value, other, atol=1e-6)
        for value, other in zip(
            chunk_of(table_of_kernels).values(), chunk_of(torch_table).values(), strict=True
        )
    )


def test_sums_are_repeatable_if_deterministic(monkeypatch):
    ids = batches(1)[0]
    shuffled = torch.randperm(len(ids), generator=torch.Generator().manual_seed(5)).to(DEVICE)
    ends = []
    for order in (torch.arange(len(ids), device=DEVICE), shuffled):
        table, _ = make_both_tables(monkeypatch, optimizer="sgd", deterministic=True)
        table.rows(ids[order])  # other rows, slots and leaders
        table.apply(table.lookup(ids)[1], 1e3 * gradients(ids, 0))
        ends.append(chunk_of(table)["rows"])
    assert torch.equal(*ends)


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so of infinities
def test_gradients_that_are_not_finite_leave_their_rows(monkeypatch):
    table, _ = make_both_tables(monkeypatch)
    ids = torch.arange(20, device=DEVICE)
    before, handle = table.lookup(ids)
    wrong = gradients(ids, 0)
    wrong[3, 2], wrong[11, 0] = math.nan, -math.inf
    table.apply(handle, wrong)
    changed = (table.rows(ids) != before).any(1)
    assert table.counters.not_finite == 2 and (~changed).nonzero().flatten().tolist() == [3, 11]


@pytest.mark.parametrize("init", INITS)
def test_initial_values_match_plain_torch(monkeypatch, init):
    table, _ = make_both_tables(monkeypatch, init=init, seed=5)
    ids = torch.tensor([LEAST, -1, 0, 1, MOST], device=DEVICE)
    values, expected = table.rows(ids), initial(ids, DIM, init, 0.05, 5)
    assert (
        torch.equal(values, expected)
        if init != "normal"
        else torch.allclose(values, expected, atol=1e-6)
    )


def test_a_full_table_refuses_new_ids_alone(monkeypatch):
    table, _ = make_both_tables(monkeypatch, capacity=10)
    stored_rows = table.rows(torch.arange(8, device=DEVICE))
    rows = table.rows(torch.arange(20, device=DEVICE))
    assert torch.equal(rows[:8], stored_rows) and torch.equal(
        rows, initial(torch.arange(20, device=DEVICE), DIM, "uniform", 0.05, 0)
    )
    assert len(table) == 10 and table.counters.refused == 10


def test_counts_of_lookups_do_not_overflow(monkeypatch):
    for table in make_both_tables(monkeypatch, capacity=10, eviction="lfu"):
        ids = torch.zeros(5, dtype=torch.int64, device=DEVICE)
        table.rows(ids)
        table.load(chunk_of(table) | {"score": torch.tensor([(1 << 31) - 2])})
        table.rows(ids)
        assert chunk_of(table)["score"][0] >= 1 << 30


def test_every_optimizer_has_a_kernel_and_every_initial_value():
    assert [getattr(update, name.upper()).value for name in OPTIMIZERS] == list(
        range(len(OPTIMIZERS))
    )
    assert [getattr(find, name.upper()).value for name in INITS[:2]] == [0, 1]
    assert not kernels.usable(torch.device("cpu"))


@pytest.mark.parametrize(
    ("places", "settings"),
    [
        (12, {}),
        (12, {"optimizer": "sgd", "capacity": 40, "eviction": "lru"}),
        (
            8,
            {"optimizer": "rowwise_adam", "capacity": 32, "eviction": "lfu", "deterministic": True},
        ),
    ],
)
def test_rows_in_host_memory_are_as_if_all_were_on_the_gpu(monkeypatch, places, settings):
    split_table = make_table(monkeypatch, steps, **in_host_memory(places, 60 - places, **settings))
    torch_table = make_table(monkeypatch, torch_steps, **settings)
    for turn, ids in enumerate((*batches(2), batches(1)[0])):
        for table in (split_table, torch_table):
            table.apply(table.lookup(ids)[1], gradients(ids, turn))
    assert alike(split_table, torch_table)
    counters = split_table.counters
    assert counters.in_place > 0 and (counters.evicted > 0 or not settings)
    assert 0 < counters.promoted <= counters.demoted or settings.get("eviction") == "lfu"
    loaded = make_table(monkeypatch, steps, **in_host_memory(places, 60 - places, **settings))
    loaded.load(chunk_of(split_table))
    other = batches(1, seed=9, limit=100)[0]
    for table in (loaded, torch_table):
        table.step = 3
        table.update(other, gradients(other, 9))
    assert torch.allclose(
        loaded.rows(other, train=False), torch_table.rows(other, train=False), rtol=1e-4, atol=1e-5
    )


def on_the_gpu(table: EmbeddingTable) -> set[int]:
    """The ids there."""
    entries, tier = table._parts.index, table._parts.tier
    slots = entries.stored()
    return set(entries.ids[slots][torch.isin(entries.rows[slots], tier.owner)].tolist())


def test_rows_that_were_not_used_for_the_longest_time_make_room(monkeypatch):
    table = make_table(monkeypatch, steps, **in_host_memory(8, 24))
    ids = torch.arange(12, device=DEVICE)
    for first in (0, 4, 8, 0, 8):
        table.rows(ids[first : first + 4])
    before = table.counters
    assert on_the_gpu(table) == {*range(4), *range(8, 12)} and before.in_place == 0
    # places of the last list that were used since do not make room before the next list
    for _ in range(4):
        table.rows(ids[4:8])
    assert on_the_gpu(table) == set(range(4, 12)) and table.counters.promoted == before.promoted + 4


def test_rows_that_are_looked_up_less_often_stay_in_host_memory(monkeypatch):
    table = make_table(monkeypatch, steps, **in_host_memory(4, 24, eviction="lfu"))
    often, seldom = torch.arange(4, device=DEVICE), torch.arange(4, 8, device=DEVICE)
    for _ in range(3):
        table.rows(often)
    for _ in range(3):
        table.rows(seldom)
    assert on_the_gpu(table) == set(range(4)) and table.counters.in_place == 12
    for _ in range(6):
        table.rows(seldom)
    assert on_the_gpu(table) == set(range(4, 8))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpu_bytes": 9}, "gpu_bytes is 9, and a row with its states has 96 B"),
        (in_host_memory(4, 4, capacity=9), "a capacity of 9 rows needs 864 B"),
        (
            {"dim": 1 << 14, "gpu_bytes": 196608, "host_bytes": 196608 << 29},
            r"536870912 rows of a table in host memory need \d+.* usable",
        ),
    ],
)
def test_memory_that_is_too_small_is_named_before_anything_is_allocated(
    monkeypatch, settings, message
):
    with pytest.raises(BusbwError, match=message):
        make_table(monkeypatch, steps, **settings)


def test_growth_that_finds_no_host_memory_changes_nothing(monkeypatch):
    table = make_table(monkeypatch, steps, **in_host_memory(4, 1 << 24))
    rows_before = table.rows(torch.arange(4, device=DEVICE))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), limits[1]))
    try:
        with pytest.raises(NoMeasurement, match="cannot be mapped"):
            table._parts.store.grow(1 << 24)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (
        torch.equal(table.rows(torch.arange(4, device=DEVICE)), rows_before)
        and table._parts.store.rows == 4
    )
