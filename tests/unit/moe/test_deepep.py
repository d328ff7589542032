"""DeepEP as a backend: when it can run, and what its check sees. A fake stands for its buffer."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from busbw.moe.draws import draw
from busbw.moe.plan import rank_plan
from busbw.moe.routing import UNIFORM, Routing
from busbw.moe.types import EXCHANGE, PACK, UNPACK, MoeSpec
from busbw.moe.volumes import COMBINE, DIRECTIONS, DISPATCH

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
TOKENS, EXPERTS, HIDDEN = 300, 8, 16


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module deep_ep with the fake buffer."""
    import fake_deepep

    found = ModuleType("deep_ep")
    found.Buffer = fake_deepep.Buffer  # type: ignore[attr-defined]
    found.__spec__ = find_spec("fake_deepep")
    monkeypatch.setitem(sys.modules, "deep_ep", found)
    yield found


def why_not(hosts: list[str], **fields: Any) -> str:
    from busbw.moe import deepep

    return deepep.why_not(MoeSpec(**fields), hosts)


@pytest.mark.parametrize(
    ("hosts", "fields", "reason"),
    [
        (["h1", "h2"], {}, "its GPUs must be in one host"),
        (["h1"] * 6, {}, "its kernels are for 2, 4 or 8 ranks, not 6"),
        (["h1"] * 2, {"datatype": "float"}, "its combine takes bfloat16, not float"),
        (["h1"] * 2, {"hidden": 7176}, "hidden 7176 is no multiple of 16 up to 8176"),
        (["h1"] * 2, {"hidden": 8192}, "hidden 8192 is no multiple of 16 up to 8176"),
        (["h1"] * 8, {}, ""),
    ],
)
def test_what_its_kernels_do_not_take_is_said(module, hosts, fields, reason: str) -> None:
    assert why_not(hosts, **fields) == reason


def test_missing_or_unusable_module_is_named(module, monkeypatch) -> None:
    hosts = ["h1"] * 2
    del module.Buffer
    assert why_not(hosts) == "deep_ep of unknown version has no Buffer.get_dispatch_config"

    def refuse(name: str) -> None:
        raise AssertionError("Duplicate NCCL runtime found\nin two lines")

    monkeypatch.setattr("busbw.moe.deepep.import_module", refuse)
    assert why_not(hosts) == "deep_ep cannot be imported: Duplicate NCCL runtime found"
    monkeypatch.setattr("busbw.moe.deepep.find_spec", lambda name: None)
    assert why_not(hosts) == "deep_ep is not installed"


def exchange_of(change: Callable[[Any], None] = lambda buffer: None) -> Any:
    """One rank that sends its tokens to itself, with a buffer that `change` has altered."""
    import fake_deepep
    import torch

    from busbw.moe.deepep import DeepEpExchange
    from busbw.moe.exchange import Buffers, buffer_rows

    spec = MoeSpec(hidden=HIDDEN, top_k=3, experts=EXPERTS)
    plan = rank_plan(draw(Routing(UNIFORM), 1, 1, TOKENS, EXPERTS, 3), EXPERTS, 0)
    buffers = Buffers(spec, buffer_rows(plan), torch.device("cpu"))
    buffer = fake_deepep.Buffer()
    exchange = DeepEpExchange(spec, plan, 0, buffers, buffer)
    change(buffer)
    return exchange


def test_phases_are_those_that_it_separates() -> None:
    phases = {direction: list(parts) for direction, parts in exchange_of().launches.items()}
    assert phases == {DISPATCH: [EXCHANGE, UNPACK], COMBINE: [PACK, EXCHANGE]}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_right_rows_pass_again_and_again(direction: str) -> None:
    exchange = exchange_of()
    for _ in range(2):
        assert exchange.check(direction, lambda: None) is None


def swapped(rows: Any) -> None:
    rows[[3, 4]] = rows[[4, 3]]


def unwritten(rows: Any) -> Any:
    """As memory that the caching allocator gives: what was in it before."""
    import torch

    return torch.full_like(rows, float("nan"))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("error", "least"), [(swapped, 2), (unwritten, TOKENS * HIDDEN)])
def test_wrong_rows_are_seen(direction: str, error: Callable[[Any], Any], least: int) -> None:
    place = "delivers" if direction == DISPATCH else "returns"
    found = exchange_of(lambda buffer: setattr(buffer, place, error)).check(direction, int)
    assert found is not None
    assert found.wrong >= least


def test_other_number_of_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import fake_deepep

    monkeypatch.setattr(
        fake_deepep.Buffer, "dispatch", lambda self, tokens, **_: (tokens[1:], 0, 0, [], (), None)
    )
    with pytest.raises(RuntimeError, match="it delivers 299 rows instead of 300"):
        exchange_of()


def test_buffer_has_room_for_both_directions(module, monkeypatch) -> None:
    from busbw.moe.deepep import DeepEp

    monkeypatch.setattr("torch.distributed.group", SimpleNamespace(WORLD=None))
    opened = DeepEp(MoeSpec(hidden=HIDDEN), 2)
    assert opened._buffer.bytes == 2 * HIDDEN * 2
    assert opened.reserved_bytes({"received": 10, "output": 5, "sent": 9}, 32) == 64 + 4 * 15 * 32
    opened.close()
    assert opened._buffer.destroyed
