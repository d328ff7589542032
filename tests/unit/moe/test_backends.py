"""Which backends run, and a run of several on one rank."""

from importlib.util import find_spec
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch.control import SoloControl
from busbw.moe import opening, registry
from busbw.moe.opening import open_backends
from busbw.moe.registry import BACKENDS, MoeBackend
from busbw.moe.text import render_all
from busbw.moe.types import MoeJob, MoeMeasured, MoeSpec
from busbw.moe.volumes import DIRECTIONS


class Opened:
    """A backend that refuses some numbers of tokens, and else is the alltoallv."""

    version = "3.1"

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        self.refused, self.closed = refused, False

    def reserved_bytes(self, rows: dict[str, int], row_bytes: int) -> int:
        return 0

    def exchange(self, spec: Any, plan: Any, rank: int, buffers: Any) -> Any:
        from busbw.moe.exchange import RankExchange

        if len(plan.own_ids) in self.refused:
            raise RuntimeError("too few tokens\nin a second line")
        return RankExchange(spec, plan, rank, buffers)

    def close(self) -> None:
        self.closed = True


def row(name: str, opened: Any, why_not: str = "", *, of_gpus: bool = False) -> MoeBackend:
    return MoeBackend(name, name, of_gpus, lambda _spec, _hosts: why_not, lambda *_: opened)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the table of backends."""

    def set_to(*rows: MoeBackend) -> None:
        monkeypatch.setattr(opening, "BACKENDS", rows)
        monkeypatch.setattr(registry, "BY_NAME", {one.name: one for one in rows})

    return set_to


def opened_of(spec: MoeSpec, *, on_gpus: bool = False) -> Any:
    phases: list[str] = []
    return open_backends(
        spec, SoloControl(), ["h1"], lambda name, what, _=None: phases.append(what), on_gpus=on_gpus
    )


def test_first_backend_runs_on_all_hardware() -> None:
    first = BACKENDS[0]
    assert (first.name, first.of_gpus, first.why_not(MoeSpec(), ["h1"])) == ("alltoallv", False, "")


def test_all_of_the_hardware_are_opened_without_a_list(table) -> None:
    table(row("a", Opened()), row("b", Opened(), of_gpus=True), row("c", Opened(), "it is old"))
    assert list(opened_of(MoeSpec(), on_gpus=True).opened) == ["a", "b"]
    found = opened_of(MoeSpec())
    assert (list(found.opened), found.left_out) == (["a"], {"c": "it is old"})


def test_only_those_that_are_named_are_opened(table) -> None:
    table(row("a", Opened()), row("b", Opened(), of_gpus=True))
    found = opened_of(MoeSpec(backends=["b", "a"]))
    assert (list(found.opened), found.left_out) == (["a"], {"b": "it needs GPUs"})
    with pytest.raises(NoMeasurement, match="no backend can run: b: it needs GPUs"):
        opened_of(MoeSpec(backends=["b"]))


@pytest.mark.torch
@pytest.mark.xdist_group("warm_python")
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_several_backends_are_verified_and_timed_in_one_run(table) -> None:
    from busbw.moe.rank import measure

    second = Opened(refused=(8,))
    table(row("alltoallv", Opened()), row("second", second), row("third", None, "it is old"))
    spec = MoeSpec(tokens=(8, 16), hidden=32, experts=4, top_k=2, max_time_s=0.04)
    events: list[Any] = []
    measure(
        MoeJob(engine="torch", program="busbw moe", argv=[], moe=spec),
        SoloControl(),
        events.append,
        lambda *_: None,
    )
    result = next(event.result for event in events if hasattr(event, "result"))
    measured = [event for event in events if isinstance(event, MoeMeasured)][-1]
    measured.add_to(result)
    found = [(one.tokens, one.backend, one.direction) for one in result.rows]
    expected = [(8, "alltoallv"), (16, "alltoallv"), (16, "second")]
    assert found == [(*one, direction) for one in expected for direction in DIRECTIONS]
    assert [one.wrong for one in result.rows] == [0] * 6
    assert result.left_out == {"third": "it is old", "second at 8 tokens": "too few tokens"}
    assert result.library.versions["second"] == "3.1"
    assert second.closed
    text = render_all(result)
    assert "left out: second at 8 tokens: too few tokens\n" in text
    assert "fastest dispatch: " in text
