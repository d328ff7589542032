"""The table of engines: names, the options each ignores, and the choice of an engine for ranks
on other hosts.
"""

import sys

import msgspec
import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.options import BY_FIELD
from busbw.core.sweep import SweepSpec
from busbw.engines import registry
from busbw.engines.registry import (
    AUTO,
    ENGINES,
    choose_for,
    engine,
    ignored_options,
    refuse_ignored,
)

PLAIN = SweepSpec(collective="all_reduce")
OTHERS = {"stream_null": 1, "local_register": 2, "cta_policy": 2, "memory": 1, "timeout": 5}
NEVER = {
    "nccl": (),
    "torch": ("-y 1", "-R 2", "-x 2", "-M 1"),
    "mpi": ("-y 1", "-R 2", "-x 2", "-M 1"),
}


def test_a_misspelled_engine_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="--engine: unknown engine 'ncll'") as caught:
        engine("ncll")
    assert caught.value.hint == "did you mean nccl? the engines are nccl, torch, mpi, sim"


@pytest.mark.parametrize("row", ENGINES, ids=lambda row: row.name)
def test_each_engine_names_the_options_it_ignores(row: registry.EngineRow) -> None:
    spec = msgspec.structs.replace(PLAIN, **OTHERS)
    expected = NEVER.get(row.name, ("-y 1", "-R 2", "-x 2", "-M 1", "-T 5"))
    assert tuple(ignored_options(spec, row.name, strict=False)) == expected
    assert ignored_options(PLAIN, row.name) == []
    assert set(row.ignores) <= set(BY_FIELD)


def test_an_ignored_option_is_refused_and_names_its_engines() -> None:
    with pytest.raises(
        UsageError, match="--local-register 2, --memory 1: not used by engine mpi"
    ) as caught:
        refuse_ignored(msgspec.structs.replace(PLAIN, local_register=2, memory=1), "mpi")
    assert caught.value.hint == "leave it out, or add --engine nccl"
    refuse_ignored(msgspec.structs.replace(PLAIN, timeout=5), "mpi")


def test_without_a_gpu_the_hint_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GPU_DEVICES", ())
    with pytest.raises(NoMeasurement, match="no NVIDIA GPU") as caught:
        registry.choose("nccl")
    assert caught.value.hint == "nvidia-smi   (or measure CPUs: --engine mpi)"


@pytest.fixture
def gpu_without_nccl4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GPU_DEVICES", ("/dev/null",))
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "nccl" else name)


@pytest.mark.usefixtures("gpu_without_nccl4py")
def test_gpus_are_measured_through_pytorch_where_nccl4py_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "torch_gpus", lambda: 2)
    row, note = registry.choose(AUTO)
    assert row.name == "torch"
    assert note.startswith("measuring through PyTorch: nccl: nccl4py not installed")


@pytest.mark.usefixtures("gpu_without_nccl4py")
def test_cpus_do_not_stand_in_for_gpus_that_no_engine_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "torch_gpus", lambda: 0)
    with pytest.raises(
        NoMeasurement, match=r"nccl4py not installed.*PyTorch sees no GPU"
    ) as caught:
        registry.choose(AUTO)
    assert "busbw[cuda13]" in caught.value.hint
    assert "--engine mpi" in caught.value.hint


@pytest.mark.usefixtures("gpu_without_nccl4py")
def test_hidden_gpus_are_not_replaced_by_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "torch_gpus", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoMeasurement, match="no GPU is visible") as caught:
        registry.choose(AUTO)
    assert caught.value.hint.startswith("nvidia-smi ")


def test_ranks_on_other_hosts_choose_auto_themselves() -> None:
    assert choose_for(AUTO, elsewhere=True) == (None, "")
    assert choose_for("nccl", elsewhere=True) == (engine("nccl"), ""), (
        "even if this machine has no GPU"
    )
    choice, _ = choose_for(AUTO, elsewhere=False)
    assert choice is not None
    with pytest.raises(UsageError):
        choose_for("nope", elsewhere=True)


def test_without_a_driver_pytorch_is_not_imported_to_count_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "GPU_DEVICES", ())
    monkeypatch.setattr(registry, "ROCM_DEVICE", "/dev/none")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import raises
    assert registry.torch_gpus() == 0
    monkeypatch.setattr(registry, "ROCM_DEVICE", "/dev/null")
    with pytest.raises(ImportError):
        registry.torch_gpus()
