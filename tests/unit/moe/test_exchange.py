"""The check of dispatch and combine on one rank: it passes what is right, and sees each error."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from busbw.core.errors import UsageError
from busbw.moe.draws import draw
from busbw.moe.plan import rank_plan
from busbw.moe.routing import UNIFORM, Routing
from busbw.moe.types import EXCHANGE, PACK, REDUCE, UNPACK, MoeSpec
from busbw.moe.volumes import COMBINE, DIRECTIONS, DISPATCH

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
TOKENS, EXPERTS = 1500, 8  # more tokens than are checked at once


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def exchange_of(datatype: str = "bfloat16") -> Any:
    """One rank that sends its tokens to itself."""
    import torch

    from busbw.moe.exchange import Buffers, RankExchange, buffer_rows

    spec = MoeSpec(hidden=20, top_k=3, experts=EXPERTS, datatype=datatype)
    plan = rank_plan(draw(Routing(UNIFORM), 1, 1, TOKENS, EXPERTS, 3), EXPERTS, 0)
    buffers = Buffers(spec, buffer_rows(plan), torch.device("cpu"))
    return RankExchange(spec, plan, 0, buffers)


def check(exchange: Any, direction: str) -> Any:
    return exchange.check(direction, lambda: None)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("datatype", ["bfloat16", "half", "float"])
def test_right_rows_pass(group: None, datatype: str, direction: str) -> None:
    assert check(exchange_of(datatype), direction) is None


def after(exchange: Any, direction: str, phase: str, change: Callable[[Any], None]) -> None:
    """Let `change` alter the buffers after each run of a phase."""
    launch = exchange.launches[direction][phase]

    def run() -> None:
        launch()
        change(exchange._buffers)

    exchange.launches[direction][phase] = run


def one_element(name: str) -> Callable[[Any], None]:
    def change(buffers: Any) -> None:
        buffers[name][-1, -1] += 1

    return change


def swapped_rows(name: str) -> Callable[[Any], None]:
    def change(buffers: Any) -> None:
        buffers[name][[3, 4]] = buffers[name][[4, 3]]

    return change


@pytest.mark.parametrize(
    ("direction", "phase", "buffer"),
    [
        (DISPATCH, PACK, "sent"),
        (DISPATCH, EXCHANGE, "received"),
        (DISPATCH, UNPACK, "experts"),
        (COMBINE, PACK, "received"),
        (COMBINE, EXCHANGE, "sent"),
        (COMBINE, REDUCE, "output"),
    ],
)
@pytest.mark.parametrize("error", [one_element, swapped_rows])
def test_error_of_each_phase_is_seen(
    group: None, direction: str, phase: str, buffer: str, error: Callable[[str], Any]
) -> None:
    exchange = exchange_of()
    after(exchange, direction, phase, error(buffer))
    found = check(exchange, direction)
    assert found is not None
    assert found.wrong >= 1
    assert found.expected != found.got


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_element_that_is_not_written_is_counted(group: None, direction: str) -> None:
    exchange = exchange_of()
    for phase in exchange.launches[direction]:
        exchange.launches[direction][phase] = lambda: None
    found = check(exchange, direction)
    rows = {DISPATCH: 3 * TOKENS, COMBINE: TOKENS}[direction]
    assert (found.rank, found.offset, found.wrong, found.got) == (0, 0, rows * 20, "nan")


def test_rank_that_receives_nothing_has_nothing_to_add_up() -> None:
    import torch

    from busbw.moe.exchange import sums

    nothing = torch.zeros(0, dtype=torch.int64)
    assert sums(nothing, 0, torch.zeros(0))(torch.zeros(0, 20)).shape == (0, 20)


def test_weights_matter(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbw.moe.exchange.WEIGHTS", (1.0, 1.0))
    exchange = exchange_of()
    monkeypatch.undo()
    assert check(exchange, COMBINE).wrong > 0


@pytest.mark.parametrize(("datatype", "top_k"), [("bfloat16", 127), ("half", 1023)])
def test_values_are_as_large_as_exact_sums_allow(datatype: str, top_k: int) -> None:
    from busbw.moe.exchange import largest_value

    assert largest_value(MoeSpec(top_k=top_k, datatype=datatype)) == 1
    with pytest.raises(UsageError, match="is not exact in this type"):
        largest_value(MoeSpec(top_k=top_k + 1, datatype=datatype))
