"""Where an offloaded AdamW keeps its states, and how much memory of the host it takes."""

import pytest

torch = pytest.importorskip("torch")

from offload_pair import DEVICE, LateLane, two_layers  # noqa: E402
from torch import nn  # noqa: E402

from busbw.core.errors import NoMeasurement  # noqa: E402
from busbw_accel import offload  # noqa: E402
from busbw_accel.offloading import copy_streams, host_memory, state_memory  # noqa: E402
from busbw_accel.offloading import optimizer as optimizers  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
V1, V2 = "sys/fs/cgroup/memory/memory.", "sys/fs/cgroup/memory."


def parameters(*sizes, orders=None):
    """Parameters of these sizes, each in a unit of its own, without memory."""
    offloaded = []
    for index, size in enumerate(sizes):
        unit = state_memory.Unit(nn.Identity(), orders[index] if orders else index)
        tensor = torch.empty(size, device="meta")
        offloaded.append(
            state_memory.OffloadedParameter(
                str(index), nn.Parameter(tensor), 0, index, unit, tensor
            )
        )
    return offloaded


@pytest.mark.parametrize(
    ("sizes", "orders", "share", "kept"),
    [
        ((4, 4, 4, 4), None, 0.0, []),
        ((4, 4, 4, 4), None, 0.5, ["0", "1"]),
        ((4, 4, 4, 4), None, 0.43, ["0"]),
        ((4, 4, 4, 4), None, 1.0, ["0", "1", "2", "3"]),
        ((4, 4, 4, 4), (3, 2, 1, 0), 0.5, ["2", "3"]),
        ((4, 4, 4, 4), (1, 1, 0, 1), 0.5, ["0", "2"]),
        ((2, 9, 2, 3), None, 0.25, ["0", "2"]),  # one that is too large is passed over
    ],
)
def test_states_of_the_parameters_that_are_needed_first_stay_on_the_device(
    sizes, orders, share, kept
):
    offloaded = parameters(*sizes, orders=orders)
    state_memory.choose(offloaded, share)
    assert [parameter.name for parameter in offloaded if parameter.on_device] == kept


def test_the_host_keeps_14_bytes_per_parameter_and_three_pieces(monkeypatch):
    monkeypatch.setattr(state_memory, "PIECE", 1024)
    net = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 32, bias=False))
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    slabs = (
        (optimizer.state_memory.states, 12 * 6144),
        (optimizer.state_memory.slots, 2 * 6144),
        (optimizer._staging._slab, 3 * 2 * 1024),
    )
    assert [slab.size for slab, _ in slabs] == [size for _, size in slabs]
    optimizer.close()


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({}, 5 << 10),
        (
            {
                V2 + "max": "4000",
                V2 + "current": "1500",
                V2 + "stat": "active_file 7\ninactive_file 100\n",
            },
            2600,
        ),
        ({V2 + "max": "4000", V2 + "current": "1500", V2 + "stat": ""}, 2500),
        (
            {V2 + "max": "9000000", V2 + "current": "1500", V2 + "stat": "inactive_file 100\n"},
            5 << 10,
        ),
        ({V2 + "max": "max", V2 + "current": "1500", V2 + "stat": "inactive_file 100\n"}, 5 << 10),
        (
            {
                V1 + "limit_in_bytes": "4000",
                V1 + "usage_in_bytes": "1500",
                V1 + "stat": "total_inactive_file 9\ninactive_file 100\n",
            },
            2600,
        ),
    ],
    ids=[
        "host",
        "container",
        "nothing to reclaim",
        "larger than the host",
        "no limit",
        "version 1",
    ],
)
def test_memory_is_that_of_the_host_or_of_a_smaller_container(tmp_path, files, answer):
    for name, text in {
        "proc/meminfo": "MemTotal: 9 kB\nMemFree: 2 kB\nMemAvailable:       5 kB\n",
        **files,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_memory.available(tmp_path) == answer


@pytest.mark.parametrize(
    ("free", "answer"), [(0, 0), (host_memory.HOST_RESERVE, 0), (host_memory.HOST_RESERVE + 5, 5)]
)
def test_a_reserve_of_host_memory_stays_free(monkeypatch, free, answer):
    monkeypatch.setattr(host_memory, "available", lambda: free)
    assert host_memory.usable() == answer
    host_memory.require(answer, "states", "")
    with pytest.raises(NoMeasurement, match="states need"):
        host_memory.require(answer + 1, "states", "")


@pytest.mark.parametrize(
    ("first", "share", "size"), [(0, "0.75", "90.0"), (10**10, "0.88", "211.2")]
)
def test_an_error_says_which_share_would_fit(monkeypatch, first, share, size):
    monkeypatch.setattr(host_memory, "available", lambda: host_memory.HOST_RESERVE + 35 * 10**9)
    offloaded = parameters(first, 10**10)
    offloaded[0].on_device = bool(first)
    with pytest.raises(NoMeasurement) as raised:
        state_memory.StateMemory(offloaded, CPU)
    amounts = "need 140.00 GB of host memory, and 35.00 of the available 37.15 are usable"
    assert str(raised.value) == f"the states of {10**10} parameters {amounts}"
    assert (
        raised.value.hint
        == f"keep states on the GPU: gpu_share={share} needs {size} GB there; free -g shows host"
        " memory"
    )


def test_a_slab_gives_zeroed_parts_that_begin_at_cache_lines():
    slab = host_memory.Slab(3 * 64, pinned=False)
    parts = [
        slab.take(count, dtype)
        for count, dtype in ((1, torch.bfloat16), (16, torch.float32), (17, torch.uint8))
    ]
    start = parts[0].data_ptr()
    assert [part.data_ptr() - start for part in parts] == [0, 64, 128]
    assert [part.numel() for part in parts] == [1, 16, 17]
    assert not any(part.any() for part in parts)
    assert slab.pinned_bytes == 0
    slab.close()


def test_memory_that_cannot_be_mapped_is_reported():
    with pytest.raises(
        NoMeasurement,
        match=r"1152921504\.6 GB of host memory cannot be mapped: Cannot allocate memory",
    ):
        host_memory.Slab(1 << 60, pinned=False)


class Waits(copy_streams.StartedCopy):
    """A copy that ends when something waits for it."""

    def __init__(self):
        self.ended = False

    def done(self):
        return self.ended

    def wait(self):
        self.ended = True

    def seconds(self):
        return 0.25


def test_a_buffer_is_filled_again_only_after_its_last_copy():
    offloaded = parameters(6)
    lane = copy_streams.Lane(CPU)
    stages = state_memory.Staging(offloaded, lane)
    buffers = [stages.take(count) for count in (6, 2, 6)]
    assert len({buffer.data_ptr() for buffer in buffers}) == 3
    assert [buffer.numel() for buffer in buffers] == [6, 2, 6]
    stages._copies = [Waits() for _ in buffers]
    assert stages.take(6).data_ptr() == buffers[0].data_ptr()
    assert (sum(transfer.ended for transfer in stages._copies), lane.traffic.seconds) == (1, 0.25)
    stages.close()
    assert all(transfer.ended for transfer in stages._copies)


def test_a_lane_waits_for_the_oldest_copies_while_too_many_bytes_fly():
    lane = copy_streams.Lane(CPU)
    third = copy_streams.IN_FLIGHT // 2
    copies = [Waits() for _ in range(4)]
    copies[0].ended = True
    lane._in_flight.extend((transfer, third) for transfer in copies)
    lane._in_flight.append((Waits(), copy_streams.IN_FLIGHT - 2 * third))
    lane.throttle()
    # what is left is just the limit
    assert [transfer.ended for transfer in copies] == [True, True, False, False]


@pytest.mark.skipif(DEVICE.type == "cuda", reason="copies are late there anyway")
def test_memory_of_borrowed_gradients_is_used_again_only_after_their_copies(monkeypatch):
    monkeypatch.setattr(optimizers, "Lane", LateLane)
    net = two_layers()
    optimizer = offload(
        net, torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.0), max_norm=None
    )
    before = {name: weight.clone() for name, weight in optimizer.weights().items()}
    buffers = [
        torch.ones(parameter.count, dtype=torch.bfloat16) for parameter in optimizer.parameters
    ]
    for parameter, buffer in zip(optimizer.parameters, buffers, strict=True):
        optimizer.collect(parameter, buffer, borrowed=True)
    optimizer.step()
    for buffer in buffers:
        buffer.fill_(-1)
    for name, weight in optimizer.weights().items():
        assert (weight < before[name]).all(), name
    optimizer.close()
