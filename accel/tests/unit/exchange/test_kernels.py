"""Triton kernels compared with plain torch: on a GPU directly, elsewhere through Triton's
interpreter (see conftest.py at the root).
"""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and Path("/dev/nvidiactl").exists():  # as the root's conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw_accel.codecs import integers as plain  # noqa: E402
from busbw_accel.codecs import kernels, sparse_packing  # noqa: E402
from busbw_accel.codecs.base import RESIDUAL, row_length  # noqa: E402
from busbw_accel.codecs.kernels import integers, not_finite, topk  # noqa: E402
from busbw_accel.codecs.topk import TopK  # noqa: E402
from busbw_accel.communicator import Communicator  # noqa: E402
from busbw_accel.settings import Settings  # noqa: E402

os.environ.pop("TRITON_INTERPRET", None)
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def use_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


LENGTH = 5_003  # some tiles, no multiple of anything
ROOM = 50


def gradient(seed: int, length: int = LENGTH, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Heavy in the tails."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(length, generator=generator) ** 3).to(kind).to(DEVICE)


def chosen(
    blob: torch.Tensor, room: int, length: int, fmt: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and values of what is no padding."""
    index, values = sparse_packing.unpack(blob, room, length, fmt)
    count = int(sparse_packing.views(blob, room, length, fmt)[0][1:].sum())
    return index[:count], values[:count]


@pytest.mark.parametrize(
    ("fmt", "kind"), [("fp32", torch.float32), ("fp16", torch.float32), ("fp32", torch.bfloat16)]
)
def test_the_largest_entries_are_sent_and_the_residual_is_kept(fmt, kind):
    room, state, residual = ROOM, {}, None
    for step in range(3):
        part = gradient(step, kind=kind)
        expected = part.float() / 3 + (0 if residual is None else residual)
        blob, residual_after = topk.packed(part, residual, state, 3, room, step, fmt, feedback=True)
        index, values = chosen(blob, room, LENGTH, fmt)
        assert 0.5 * room < len(index) <= room
        assert bool((index.diff() > 0).all())
        assert torch.allclose(
            values,
            expected[index],
            rtol=1e-3 if fmt == "fp16" else 1e-6,
            atol=1e-4 if fmt == "fp16" else 1e-6,
        )
        if len(index) < room:  # nothing had to wait
            assert expected[index].abs().min() >= residual_after.abs().max() - (
                1e-2 if fmt == "fp16" else 1e-5
            )
        everything = residual_after.double().index_add(0, index, values.double())
        assert torch.allclose(everything, expected.double(), rtol=0, atol=1e-5), "nothing is lost"
        residual = residual_after


def test_a_threshold_that_is_far_off_is_found_anew():
    room, state = ROOM, {}
    for step in range(2):
        blob, _ = topk.packed(
            gradient(step) * 1000**step, None, state, 1, room, step, "fp32", feedback=False
        )
        assert 0.5 * room < len(chosen(blob, room, LENGTH, "fp32")[0]) <= room


@pytest.mark.parametrize("step", range(3))
def test_overflow_waits_and_later_steps_start_elsewhere(step):
    room, state = ROOM, {}
    part = torch.ones(LENGTH, device=DEVICE)  # all reach the threshold
    blob, residual = topk.packed(part, None, state, 1, room, step, "fp32", feedback=True)
    index, values = chosen(blob, room, LENGTH, "fp32")
    begin = step * topk.TURN % LENGTH
    expected = torch.arange(begin, begin + room, device=DEVICE) % LENGTH
    assert torch.equal(index, expected.sort().values)
    assert bool((values == 1).all())
    assert int((residual == 0).sum()) == room


@pytest.mark.parametrize("length", [1, 5, 1024, 3000])
def test_everything_is_sent_where_there_is_room_for_it(length):
    part = gradient(1, length)
    part[0] = 0.0
    blob, residual = topk.packed(part, None, {}, 1, length, 3, "fp32", feedback=True)
    index, values = chosen(blob, length, length, "fp32")
    assert torch.equal(index, torch.arange(length, device=DEVICE))
    assert torch.equal(values, part)
    assert not bool(residual.any())


@pytest.mark.parametrize(
    ("length", "fmt", "kind"),
    [
        (LENGTH, "fp32", torch.float16),
        (LENGTH, "fp16", torch.float32),
        (66_001, "fp32", torch.float32),
    ],
)
def test_the_sum_over_the_entries_of_all_ranks(length, fmt, kind):
    """One length is of more than one block of positions."""
    room = length // 20
    blobs = [
        topk.packed(gradient(rank, length), None, {}, 2, room, 0, fmt, feedback=False)[0]
        for rank in range(2)
    ]
    part = gradient(9, length, kind)
    wrong = topk.add(torch.stack(blobs), part, room, fmt)
    expected = torch.zeros(length, device=DEVICE)
    for blob in blobs:
        expected.index_add_(0, *chosen(blob, room, length, fmt))
    assert torch.allclose(
        part.float(), expected.to(kind).float(), rtol=2**-10 if kind == torch.float16 else 1e-6
    )
    assert int(wrong) == 0


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so of infinities
@pytest.mark.parametrize("feedback", [True, False])
def test_the_codec_keeps_the_unsent_residual_only_with_feedback(feedback):
    codec, communicator = (
        TopK(Settings(method="topk", ratio=0.1, feedback=feedback)),
        Communicator(None, 1, 0, 1),
    )
    state, unsent = {}, torch.zeros(300, device=DEVICE)
    for step in range(2):
        part = gradient(step, 300)
        unsent += part
        codec._exchange_in_kernels(part, communicator, state, step, 30)
        unsent -= part
        assert (RESIDUAL in state) == feedback
        if feedback:
            assert torch.allclose(state[RESIDUAL], unsent, atol=1e-5)
    codec._exchange_in_kernels(
        torch.full((300,), torch.nan, device=DEVICE), communicator, state, 2, 30
    )
    if feedback:  # as before the step, which the optimizer skips
        assert torch.allclose(state[RESIDUAL], unsent, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("infinite", [float("nan"), float("inf"), -float("inf")])
def test_infinite_gradients_propagate_and_keep_the_residual(infinite):
    part, before = gradient(1), gradient(2)
    part[3_000] = infinite
    blob, residual = topk.packed(part, before, {}, 1, ROOM, 0, "fp32", feedback=True)
    wrong = topk.add(blob[None], part, ROOM, "fp32")
    assert not bool(torch.isfinite(part[3_000]))
    not_finite.restore(residual, before, wrong)
    assert torch.equal(residual, before)
    not_finite.restore(residual, None, wrong)
    assert not bool(residual.any())


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    ("way", "infinite", "values", "momentum"),
    [
        ("_exchange_in_kernels", "nan", "fp32", 0.0),
        ("_exchange_in_kernels", "-inf", "fp16", 0.0),
        ("_exchange_in_torch", "nan", "fp16", 0.0),
        ("_exchange_in_torch", "-inf", "fp32", 0.0),
        ("_exchange_in_torch", "-inf", "fp32", 0.9),
    ],
)
def test_infinite_gradients_without_room_are_seen_in_their_step_and_gone_after_it(
    way, infinite, values, momentum
):
    """Where more elements reach the threshold than there is room for, some wait."""
    whole = {"compress_least": 0, "dense_below_2d": False} if momentum else {}
    settings = Settings(method="topk", ratio=0.01, values=values, momentum=momentum, **whole)
    codec = TopK(settings)
    state, communicator = {}, Communicator(None, 1, 0, 1)
    for step in range(3):
        part = torch.ones(LENGTH, device=DEVICE)  # all reach the threshold
        if step == 1:
            begin = step * topk.TURN % LENGTH
            part[begin - 1] = float(infinite)  # the last in the order of the step
        getattr(codec, way)(part, communicator, state, step, ROOM)
        assert bool(torch.isfinite(part).all()) == (step != 1), step
        assert bool(torch.isfinite(state[RESIDUAL]).all())


def test_a_sum_that_fp16_cannot_have_counts_as_not_finite():
    blobs = [
        topk.packed(
            torch.full((9,), 6e4, device=DEVICE), None, {}, 1, 9, 0, "fp32", feedback=False
        )[0]
        for _ in range(2)
    ]
    part = torch.zeros(9, dtype=torch.float16, device=DEVICE)
    assert int(topk.add(torch.stack(blobs), part, 9, "fp32")) == 1


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_integers_and_scales_match_plain_torch(kind, bits):
    size, length = 2, 4096
    part, before = gradient(1, 7000, kind), gradient(2, 7000)
    part[:256] = 0.0
    before[:256] = 0.0  # a block of zeros
    wrong = not_finite.flag(part.device)
    sent, residual = integers.packed(
        part, before, size, size, length, bits, feedback=True, wrong=wrong
    )
    padded = torch.nn.functional.pad(part.float() / size + before, (0, size * length - 7000))
    expected, expected_residual = plain.pack(padded.view(size, length), bits)
    deviation = (plain.unpack(sent, length, bits) - plain.unpack(expected, length, bits)).abs()
    assert float((deviation > 1e-5).float().mean()) < 0.01 and float(
        deviation.max()
    ) < 0.2 * 127 / (2 ** (bits - 1) - 1)  # where a half was rounded to the other side
    assert torch.allclose(residual, expected_residual.view(-1)[:7000], rtol=0, atol=1e-5)
    summed, sum_residual = integers.summed(sent, residual[:length], length, bits, feedback=True)
    total = plain.unpack(sent, length, bits).sum(0) + residual[:length]
    assert torch.allclose(
        plain.unpack(summed, length, bits)[0] + sum_residual, total, rtol=0, atol=1e-5
    )
    unpacked_sum = torch.empty(length - 3, dtype=kind, device=DEVICE)
    integers.add(sent, bits, unpacked_sum, wrong)
    assert torch.allclose(
        unpacked_sum.float(),
        plain.unpack(sent, length, bits).sum(0)[:-3],
        rtol=1e-5 if kind == torch.float32 else 2**-7,
        atol=1e-6,
    )
    out = torch.empty(7000, dtype=kind, device=DEVICE)
    integers.unpack(sent, length, bits, out, wrong)
    assert torch.allclose(
        out.float(),
        plain.unpack(sent, length, bits).view(-1)[:7000],
        rtol=0 if kind == torch.float32 else 2**-7,
        atol=0,
    )
    assert int(wrong) == 0


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("width", [1, 2047, 4096, 5003])
def test_rows_of_any_width_are_those_of_padded_ones(width, bits):
    part, before = gradient(1, 3 * width), gradient(2, 3 * width)
    part[-1] = float("inf")
    sent, residual = integers.packed(part, before, 3, 3, width, bits, feedback=True)
    length = row_length(width)
    padded = [
        torch.nn.functional.pad(flat.view(3, width), (0, length - width)).view(-1)
        for flat in (part, before)
    ]
    expected, rest = integers.packed(*padded, 3, 3, length, bits, feedback=True)
    assert torch.equal(sent, expected)
    rest = rest.view(3, length)[:, :width].reshape(-1)
    assert torch.equal(residual.view(torch.int32), rest.view(torch.int32))
    guarded = torch.full((3 * width + 8,), 7.0, device=DEVICE)
    integers.unpack(sent, width, bits, guarded[: 3 * width])
    rows = plain.unpack(sent, length, bits)[:, :width].reshape(-1)
    assert torch.equal(guarded[: 3 * width].nan_to_num(), rows.nan_to_num())
    assert bool((guarded[3 * width :] == 7).all())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("infinite", [float("nan"), float("inf")])
def test_only_blocks_with_infinite_values_become_nan(infinite, bits):
    part = gradient(1, 4096)
    part[300] = infinite
    wrong = [not_finite.flag(part.device) for _ in range(3)]
    sent, _ = integers.packed(part, None, 1, 1, 4096, bits, feedback=True, wrong=wrong[0])
    summed, _ = integers.summed(sent, None, 4096, bits, feedback=False)
    integers.unpack(summed, 4096, bits, part, wrong[1])
    integers.add(sent, bits, part, wrong[2])
    assert [int(one) for one in wrong] == [1, 1, 1]
    assert bool(part[256:512].isnan().all())
    assert bool(part[:256].isfinite().all()) and bool(part[512:].isfinite().all())


@pytest.mark.filterwarnings("ignore")  # of sums of whatever there was
@pytest.mark.parametrize("fmt", ["fp32", "fp16"])
def test_corrupt_bytes_do_not_write_outside_the_gradient(fmt):
    """The room of a lost rank is unpacked before its loss is known."""
    room, guard = 300, 70_000  # farther than a position reaches
    for seed in range(3):
        padded = torch.zeros(LENGTH + 2 * guard, device=DEVICE)
        generator = torch.Generator().manual_seed(seed)
        blobs = torch.randint(
            0,
            256,
            (2, sparse_packing.size(room, LENGTH, fmt)),
            dtype=torch.uint8,
            generator=generator,
        ).to(DEVICE)
        topk.add(blobs, padded[guard:-guard], room, fmt)
        assert not padded[:guard].any() and not padded[-guard:].any()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 5000])
def test_only_a_failed_exchange_sets_its_gradient_to_nan(length, kind):
    part = gradient(3, length, kind)
    for failed, expected in ((0, part.clone()), (1, torch.full_like(part, torch.nan))):
        not_finite.spoil(part, torch.tensor([failed], dtype=torch.int32, device=DEVICE))
        assert torch.equal(part, expected) if not failed else bool(part.isnan().all())


def test_without_a_compiler_codecs_use_torch_and_warn_once(monkeypatch, capsys):
    def failing(*_):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(not_finite, "restore", failing)
    kernels._works.cache_clear()
    try:
        assert [kernels._works(torch.device(DEVICE)) for _ in range(2)] == [False, False]
    finally:
        kernels._works.cache_clear()
    assert (
        capsys.readouterr().err.count(
            "busbw accel: codecs run in plain torch, several times slower: Triton failed with"
            " RuntimeError('Failed"
        )
        == 1
    )


@pytest.mark.parametrize("elements", [1024, 1_100])  # rows are padded to 1024
@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize("codec", [plain.Int8, plain.Int4])
def test_shards_are_summed_and_gathered_as_in_plain_torch(codec, kind, elements, monkeypatch):
    communicator, codec = Communicator(None, 3, 0, 3), codec(Settings(method="int8"))
    found = []
    for in_kernels in (True, False):
        monkeypatch.setattr(kernels, "usable", lambda _, answer=in_kernels: answer)
        state, shard = {}, torch.empty(elements, dtype=kind, device=DEVICE)
        for step in range(2):
            rows = gradient(step, 3 * elements, kind).view(3, elements)
            codec.reduce_scatter(rows, shard, communicator, state, step)
        gathered = torch.empty(3 * elements, dtype=kind, device=DEVICE)
        codec.all_gather(shard, gathered, communicator)
        found.append((shard, state[RESIDUAL], gathered))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and one.any()
        equal = torch.isclose(one.float(), other.float(), rtol=1e-4, atol=1e-5)
        assert equal.float().mean() > 0.98  # the rest is rounded to the neighbor
