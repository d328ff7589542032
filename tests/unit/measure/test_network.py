"""A run uses the requested network, or ends before the first measurement and names the one NCCL
chose.
"""

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import EngineLibrary
from busbw.core.sweep import SweepSpec
from busbw.host import net_plugin
from busbw.launch.control import SoloControl
from busbw.measure import network
from busbw.measure.job import SweepJob, decode_job, encode
from busbw.measure.sweep import measure

NCCL = EngineLibrary("nccl", 22809)


class Ranks(SoloControl):
    """This process among others, each with its host and networks."""

    def __init__(self, *reported: tuple[str, tuple[str, ...]]) -> None:
        self._reported = list(reported)

    def allgather(self, value: Any) -> list[Any]:
        return self._reported


def job(net: str = "", engine: str = "nccl") -> SweepJob:
    return SweepJob(sweep=SweepSpec(collective="all_reduce", max_bytes=64), engine=engine, net=net)


def starting(work: SweepJob, *lines: str) -> Sequence[str]:
    """Start like an engine whose NCCL logs these lines; returns the networks found."""
    with (
        network.starting(work, SoloControl()) as log,
        Path(os.environ["NCCL_DEBUG_FILE"]).open("w") as file,
    ):
        file.writelines(f"h:1:1 [0] NCCL INFO {line}\n" for line in lines)
    return log.networks


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the variables that a rank sets permanently."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in (
        "NCCL_DEBUG",
        "NCCL_NET",
        "NCCL_NET_PLUGIN",
        "NCCL_IB_DISABLE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_NTHREADS",
    ):
        os.environ.pop(name, None)


def test_the_network_travels_to_the_ranks_with_the_job() -> None:
    assert decode_job(encode(job("socket"))).net == "socket"
    assert '"net"' not in encode(job())


def test_net_overrides_the_environment() -> None:
    os.environ["NCCL_NET"], os.environ["NCCL_IB_DISABLE"] = "Socket", "1"
    assert starting(job("ib"), "Using network IB") == ("IB",)
    assert (os.environ["NCCL_NET"], os.environ["NCCL_IB_DISABLE"]) == ("IB", "0")


def test_without_net_the_environment_is_unchanged() -> None:
    os.environ["NCCL_NET"] = "AWS Libfabric"
    assert starting(job(), "Using network AWS Libfabric") == ("AWS Libfabric",)
    assert os.environ["NCCL_NET"] == "AWS Libfabric"
    assert "NCCL_IB_DISABLE" not in os.environ


@pytest.mark.parametrize(
    "error",
    [
        NoMeasurement("NCCL failed on rank 0: invalid usage"),
        RuntimeError("NCCL failed on rank 0: invalid usage"),
    ],
)
def test_nccls_start_error_names_the_network(error: Exception) -> None:
    with pytest.raises(NoMeasurement) as caught, network.starting(job("ib"), SoloControl()):
        raise error
    assert (
        caught.value.message
        == "NCCL failed on rank 0: invalid usage (with --net ib NCCL uses no other network)"
    )
    assert "--print-env" in caught.value.hint


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, library: Callable[..., Path]) -> Path:
    path = library()
    monkeypatch.setenv("BUSBW_PLUGIN", str(path))
    return path


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("channels", "expected"), [((4, 0), "4"), ((16, 4), "16"), ((0, 0), None), ((None, 16), None)]
)
def test_all_ranks_use_the_fastest_hosts_channels(
    monkeypatch: pytest.MonkeyPatch, channels: tuple[int | None, ...], expected: str | None
) -> None:
    """Unless the user has chosen channels for any rank."""

    class Others(SoloControl):
        def allgather(self, value: Any) -> list[Any]:
            return [value, *((count, f"h{at}", 1, None) for at, count in enumerate(channels))]

    monkeypatch.setattr(net_plugin, "rate", lambda _: 3.125e9)
    for _ in range(2):  # again, for --repeats
        with network.starting(job("busbw"), Others()):
            assert os.environ.get("NCCL_MIN_NCHANNELS") == expected


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("other", "gpus", "expected"),
    [
        (("h2", 1, None), 1, "256"),
        (("h2", 1, "512"), 1, None),  # chosen on that host, for that rank only
        (("h2", 1, None), 2, None),
        (("h2", 2, None), 1, None),
        ((platform.node(), 1, None), 1, None),  # two ranks here
    ],
)
def test_one_gpu_hosts_use_256_threads_unless_set(
    monkeypatch: pytest.MonkeyPatch,
    other: tuple[str, int, str | None],
    gpus: int,
    expected: str | None,
) -> None:
    class Other(SoloControl):
        def allgather(self, value: Any) -> list[Any]:
            return [value, (8, *other)]

    monkeypatch.setattr(net_plugin, "rate", lambda _: None)
    with network.starting(msgspec.structs.replace(job("busbw"), gpus_per_process=gpus), Other()):
        assert os.environ["NCCL_MIN_NCHANNELS"] == "8"
        assert os.environ.get("NCCL_NTHREADS") == expected


@pytest.mark.usefixtures("plugin")
def test_channels_set_by_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_plugin, "rate", lambda _: None)
    os.environ["NCCL_MAX_NCHANNELS"] = "8"
    with network.starting(job("busbw"), SoloControl()):
        assert "NCCL_MIN_NCHANNELS" not in os.environ


def test_errors_without_net_are_unchanged() -> None:
    with pytest.raises(RuntimeError, match=r"^boom$"), network.starting(job(), SoloControl()):
        raise RuntimeError("boom")


def test_a_missing_plugin_is_reported_before_nccl_starts() -> None:
    os.environ["BUSBW_PLUGIN"] = "/nowhere/libplugin.so"
    with (
        pytest.raises(NoMeasurement, match=r"BUSBW_PLUGIN=/nowhere/libplugin\.so: no such file"),
        network.starting(job("busbw"), SoloControl()),
    ):
        raise AssertionError


def test_a_result_names_all_networks_in_use() -> None:
    assert (
        network.agreed(job(), Ranks(("a", ("Socket",)), ("b", ("Socket",))), NCCL, ()) == "Socket"
    )
    assert (
        network.agreed(job(), Ranks(("a", ("Socket",)), ("b", ("IB",))), NCCL, ()) == "IB, Socket"
    )
    assert network.agreed(job(), Ranks(("a", ()), ("b", ())), NCCL, ()) == ""


@pytest.mark.parametrize("used", ["busbw", "BusBW"])
def test_the_network_name_is_compared_without_case(used: str) -> None:
    assert network.agreed(job("busbw"), Ranks(("a", (used,))), NCCL, ()) == used


def test_a_wrong_network_ends_the_run_with_its_hosts() -> None:
    reported = [
        ("h1", ("busbw",)),
        *((f"h{n}", ("Socket",)) for n in range(2, 8)),
        ("h2", ("Socket",)),
    ]
    with pytest.raises(NoMeasurement) as caught:
        network.agreed(job("busbw"), Ranks(*reported), NCCL, ())
    assert caught.value.message == "--net busbw requests busbw, but NCCL uses Socket on h[2-7]"
    assert "NCCL_DEBUG=INFO" in caught.value.hint


def test_an_unlogged_network_is_not_assumed() -> None:
    os.environ["NCCL_DEBUG"] = "WARN"
    assert network.unconfirmed(job("busbw"), "busbw") == ""
    assert network.unconfirmed(job(), "") == ""
    assert network.unconfirmed(job("busbw"), "").startswith(
        "note: --net busbw could not be confirmed: NCCL_DEBUG=WARN hides it"
    )


def test_pytorch_without_a_gpu_has_no_network_to_choose() -> None:
    with pytest.raises(UsageError, match="PyTorch found no GPU"):
        network.agreed(job("socket", "torch"), SoloControl(), EngineLibrary("torch"), ())


def test_a_job_of_an_engine_without_nccl_is_refused() -> None:
    with pytest.raises(UsageError, match="--net socket: engine sim moves no data through NCCL"):
        measure(job("socket", "sim"), SoloControl(), print)


def test_a_job_without_nccl_has_no_network() -> None:
    events: list[Any] = []
    send: Callable[[Any], None] = events.append
    measure(
        SweepJob(
            sweep=SweepSpec(collective="all_reduce", max_bytes=64), engine="sim", gpus_per_process=2
        ),
        SoloControl(),
        send,
    )
    assert events[0].result.library.network == ""
