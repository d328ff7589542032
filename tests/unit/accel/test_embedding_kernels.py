"""A table with kernels compared with one in plain torch; see test_kernels.py for where kernels run."""

import math
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
if DEVICE.type == "cpu" and Path("/dev/nvidiactl").exists():  # as tests/conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw.accel.embedding import index, kernels, plain, store  # noqa: E402
from busbw.accel.embedding import table as tables  # noqa: E402
from busbw.accel.embedding.initial import initial  # noqa: E402
from busbw.accel.embedding.kernels import find, hashing, place, steps, update, values  # noqa: E402, F401 - Triton decides here where they run
from busbw.accel.embedding.settings import INITS, OPTIMIZERS  # noqa: E402
from busbw.accel.embedding.table import Table, TableSettings  # noqa: E402

os.environ.pop("TRITON_INTERPRET", None)
pytestmark = pytest.mark.torch
LEAST, MOST = -(1 << 63), (1 << 63) - 1
DIM = 6  # no multiple of 4


@pytest.fixture(autouse=True)
def where(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(store, "SEGMENT", 4)
    monkeypatch.setattr(index, "LEAST_SLOTS", 16)
    monkeypatch.setattr(place, "CUT", 4)  # so that groups have several parts
    for module in (find, place):
        monkeypatch.setattr(module, "BLOCK", 32)


def both(monkeypatch: pytest.MonkeyPatch, dim: int = DIM, **given: object) -> tuple[Table, Table]:
    """A table with kernels, and one without."""
    made = []
    for means in (steps, plain):
        monkeypatch.setattr(tables, "_steps_for", lambda _, means=means: means)
        made.append(Table(dim, TableSettings(**{"initial": 4, "lr": 0.1, **given}), DEVICE))
    return made[0], made[1]


def batches(count: int, seed: int = 0, most: int = 30) -> list[torch.Tensor]:
    """Ids with extremes and with large groups."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for turn in range(count):
        ids = torch.cat(
            [torch.randint(-most, most, (60,), generator=random) + 5 * turn, torch.full((20,), 7), torch.tensor([LEAST, MOST, LEAST])]
        )
        made.append(ids[torch.randperm(len(ids), generator=random)].to(DEVICE))
    return made


def gradients(ids: torch.Tensor, seed: int, dim: int = DIM) -> torch.Tensor:
    return torch.randn(len(ids), dim, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def chunk_of(table: Table) -> dict[str, torch.Tensor]:
    return dict(next(iter(table.export(1000))))


def alike(one: Table, other: Table) -> bool:
    mine, wanted = chunk_of(one), chunk_of(other)
    assert one.counters == other.counters
    assert mine.keys() == wanted.keys()
    return all(torch.allclose(mine[name].double(), wanted[name].double(), rtol=1e-4, atol=1e-5) for name in wanted)


@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        ("sgd", {"capacity": 60, "eviction": "lru", "init": "normal", "weight_decay": 0.1}),
        ("adam", {"admission": 2}),
        ("rowwise_adam", {"capacity": 60, "eviction": "lfu"}),
        ("rowwise_adagrad", {"deterministic": True, "init": "zeros"}),
    ],
)
def test_any_table_has_the_rows_and_counts_of_plain_torch(monkeypatch, optimizer, given):
    monkeypatch.setattr(index, "LEAST_SLOTS", 1024 if "admission" in given else 16)  # else lookups so far may be forgotten
    mine, plainly = both(monkeypatch, optimizer=optimizer, **given)
    for turn, ids in enumerate(batches(3)):
        for table in (mine, plainly):
            table.apply(table.lookup(ids)[1], gradients(ids, turn))
    assert alike(mine, plainly)
    if "eviction" in given:
        assert mine.counters.evicted > 0
    other = batches(1, seed=9, most=100)[0]
    assert torch.allclose(mine.rows(other, train=False), plainly.rows(other, train=False), rtol=1e-4, atol=1e-5)
    for table in (mine, plainly):
        table.update(other, gradients(other, 9))
    assert alike(mine, plainly) and mine.counters.skipped > 0


def test_chunks_load_into_a_table_with_kernels(monkeypatch):
    mine, plainly = both(monkeypatch, optimizer="rowwise_adam", dim=5)
    ids = batches(1)[0]
    plainly.apply(plainly.lookup(ids)[1], gradients(ids, 0, 5))
    for chunk in plainly.export(7):
        mine.load(chunk)
    mine.step = plainly.step
    for table in (mine, plainly):
        table.update(ids, gradients(ids, 1, 5))
    assert all(
        torch.allclose(one, other, atol=1e-6) for one, other in zip(chunk_of(mine).values(), chunk_of(plainly).values(), strict=True)
    )


def test_sums_are_repeatable_if_deterministic(monkeypatch):
    ids = batches(1)[0]
    shuffled = torch.randperm(len(ids), generator=torch.Generator().manual_seed(5)).to(DEVICE)
    ends = []
    for order in (torch.arange(len(ids), device=DEVICE), shuffled):
        table, _ = both(monkeypatch, optimizer="sgd", deterministic=True)
        table.rows(ids[order])  # other rows, slots and leaders
        table.apply(table.lookup(ids)[1], 1e3 * gradients(ids, 0))
        ends.append(chunk_of(table)["rows"])
    assert torch.equal(*ends)


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so of infinities
def test_gradients_that_are_not_finite_leave_their_rows(monkeypatch):
    table, _ = both(monkeypatch)
    ids = torch.arange(20, device=DEVICE)
    before, handle = table.lookup(ids)
    wrong = gradients(ids, 0)
    wrong[3, 2], wrong[11, 0] = math.nan, -math.inf
    table.apply(handle, wrong)
    changed = (table.rows(ids) != before).any(1)
    assert table.counters.not_finite == 2 and (~changed).nonzero().flatten().tolist() == [3, 11]


@pytest.mark.parametrize("init", INITS)
def test_initial_values_match_plain_torch(monkeypatch, init):
    table, _ = both(monkeypatch, init=init, seed=5)
    ids = torch.tensor([LEAST, -1, 0, 1, MOST], device=DEVICE)
    found, wanted = table.rows(ids), initial(ids, DIM, init, 0.05, 5)
    assert torch.equal(found, wanted) if init != "normal" else torch.allclose(found, wanted, atol=1e-6)


def test_a_full_table_refuses_new_ids_alone(monkeypatch):
    table, _ = both(monkeypatch, capacity=10)
    kept = table.rows(torch.arange(8, device=DEVICE))
    found = table.rows(torch.arange(20, device=DEVICE))
    assert torch.equal(found[:8], kept) and torch.equal(found, initial(torch.arange(20, device=DEVICE), DIM, "uniform", 0.05, 0))
    assert len(table) == 10 and table.counters.refused == 10


def test_every_optimizer_has_a_kernel_and_every_initial_value():
    assert [getattr(update, name.upper()).value for name in OPTIMIZERS] == list(range(len(OPTIMIZERS)))
    assert [getattr(hashing, name.upper()).value for name in INITS[:2]] == [0, 1]
    assert not kernels.usable(torch.device("cpu"))
