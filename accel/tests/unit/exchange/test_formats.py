"""The wire formats: bytes are read back as the values they were packed from."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw_accel.codecs import integers, sparse_packing, topk
from busbw_accel.communicator import Communicator
from busbw_accel.settings import Settings


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 200_000),
    st.integers(1, 300),
    st.integers(0, 300),
    st.sampled_from(["fp32", "fp16"]),
    st.integers(0, 2**31),
)
def test_entries_are_read_back(length, room, count, fmt, seed):
    room = min(room, length)
    count = min(count, room)
    generator = torch.Generator().manual_seed(seed)
    total = torch.randn(length, generator=generator) * 10.0 ** torch.randint(
        -6, 6, (1,), generator=generator
    )
    index = torch.zeros(room, dtype=torch.int64)
    index[:count] = torch.randperm(length, generator=generator)[:count].sort().values
    blob = sparse_packing.pack(total, index, torch.tensor(count), fmt)
    assert blob.dtype == torch.uint8 and blob.numel() == sparse_packing.size(room, length, fmt)
    unpacked_index, values = sparse_packing.unpack(blob, room, length, fmt)
    assert torch.equal(unpacked_index, index)
    assert torch.equal(values, sparse_packing.values(blob, room, length, fmt))
    assert not values[count:].any()
    expected = total[index[:count]]
    if fmt == "fp32":
        assert torch.equal(values[:count], expected)
    elif count:
        assert (values[:count] - expected).abs().max() <= expected.abs().max() / 1024


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([8, 4]),
    st.integers(1, 4),
    st.integers(1, 8),
    st.floats(-30, 30),
    st.integers(0, 2**31),
)
def test_an_integer_is_within_half_a_step_of_its_block(bits, rows, blocks, power, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, blocks * integers.BLOCK, generator=generator) * 10.0**power
    packed, residual = integers.pack(values, bits)
    assert (
        packed.shape == (rows, blocks * (integers.BLOCK * bits // 8 + integers.SCALE_BYTES))
        and packed.dtype == torch.uint8
    )
    unpacked = integers.unpack(packed, values.shape[1], bits)
    assert torch.allclose(
        residual.view_as(unpacked), values - unpacked, atol=float(values.abs().max()) * 1e-6
    )
    step = values.view(rows, blocks, -1).abs().amax(2) / {8: 127, 4: 7}[bits]
    deviation = (unpacked - values).view(rows, blocks, -1).abs().amax(2)
    assert (deviation <= step * 0.5001 + torch.finfo(torch.float32).tiny).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_zero_blocks_stay_zero_and_infinite_ones_are_nan(bits):
    values = torch.zeros(1, 3 * integers.BLOCK)
    values[0, integers.BLOCK + 5], values[0, 2 * integers.BLOCK] = float("inf"), 1.0
    unpacked = integers.unpack(integers.pack(values, bits)[0], values.shape[1], bits).view(3, -1)
    assert not unpacked[0].any() and torch.isnan(unpacked[1]).all() and unpacked[2, 0] == 1


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 5000),
    st.integers(1, 400),
    st.floats(0, 1),
    st.integers(0, 1000),
    st.integers(0, 2**31),
)
def test_positions_start_at_the_turn_and_wrap_around(length, room, share, step, seed):
    room = min(room, length)
    chosen = torch.rand(length, generator=torch.Generator().manual_seed(seed)) < share
    index, count = topk.positions(chosen, room, step)
    chosen_index = torch.nonzero(chosen).view(-1)
    begin = step * topk.TURN % length
    expected = (
        torch.cat([chosen_index[chosen_index >= begin], chosen_index[chosen_index < begin]])[:room]
        .sort()
        .values
    )
    assert int(count) == chosen_index.numel()
    assert torch.equal(index, torch.nn.functional.pad(expected, (0, room - expected.numel())))


def test_every_element_is_sent_within_a_bounded_time():
    times = torch.zeros(1000)
    for step in range(200):
        index, count = topk.positions(torch.ones(1000, dtype=torch.bool), 100, step)
        assert int(count) == 1000
        times[index] += 1
    assert times.min() >= 10 and times.max() <= 30


@pytest.mark.parametrize("factor", [0.0, 0.25, 1.0, 4.0])
def test_a_threshold_is_found_though_columns_differ(factor):
    """Columns that a sample at even distances would see alone."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(1024, 1024, generator=generator)
    matrix[:, :: matrix.numel() // topk.SAMPLE] *= factor
    flat, state = matrix.abs().flatten(), {}
    room = flat.numel() // 100
    best = flat.topk(room).values.square().sum()
    for step in range(3):
        index, count = topk._select(flat, room, step, state)
        assert 0.7 * room < int(count) <= room, (step, int(count))
        assert flat[index[: int(count)]].square().sum() > 0.75 * best


def test_values_below_a_sharp_edge_are_sent_in_the_end():
    """Error feedback leaves magnitudes that all end below the last threshold; without new
    gradients they have to drain.
    """
    unsent = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) + 1.0
    state, room = {}, 200
    for step in range(400):
        index, count = topk._select(unsent, room, step, state)
        unsent[index[: int(count)]] = 0.0
    assert not unsent.any(), int(torch.count_nonzero(unsent))


@pytest.mark.parametrize("share", [0.07, 0.14])
def test_the_next_threshold_selects_nearer_to_the_room(share):
    magnitude, room = torch.rand(10_000, generator=torch.Generator().manual_seed(0)), 1000
    before = torch.tensor(1.0 - share)
    state = {topk.THRESHOLD: before}
    topk._select(magnitude, room, 0, state)
    count_before, count_after = (
        int((magnitude >= threshold).sum()) for threshold in (before, state[topk.THRESHOLD])
    )
    assert state[topk.THRESHOLD] != before
    assert abs(count_after - room) < abs(count_before - room)


@pytest.mark.parametrize("momentum", [0.0, 0.5], ids=["gradients", "velocities"])
def test_sent_and_residual_of_one_rank_add_up_to_its_gradients(momentum):
    """Momentum correction sends velocities instead of gradients, and begins a velocity anew
    where it was sent.
    """
    chosen = Settings(
        method="topk", ratio=0.1, momentum=momentum, compress_least=0, dense_below_2d=False
    )
    codec, communicator = topk.TopK(chosen), Communicator(None, 1, 0, 1)
    generator, state, velocity, unsent = (
        torch.Generator().manual_seed(0),
        {},
        torch.zeros(500),
        torch.zeros(500),
    )
    for step in range(6):
        gradient = torch.randn(500, generator=generator)
        part = gradient.clone()
        codec.exchange(part, communicator, state, step)
        velocity = momentum * velocity + gradient
        unsent += velocity - part
        velocity[part != 0] = 0.0
        assert 0 < torch.count_nonzero(part) <= 50
        assert torch.allclose(state["residual"], unsent, atol=1e-5)
        assert ("velocity" in state) == bool(momentum)
        if momentum:
            assert torch.allclose(state["velocity"], velocity, atol=1e-5)


def test_without_feedback_no_residual_is_kept():
    codec, state = topk.TopK(Settings(method="topk", ratio=0.1, feedback=False)), {}
    codec.exchange(
        torch.randn(500, generator=torch.Generator().manual_seed(0)),
        Communicator(None, 1, 0, 1),
        state,
        0,
    )
    assert set(state) == {topk.THRESHOLD}
