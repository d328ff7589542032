"""Coded gradients: every coder gives the same bytes, and the same bits back; and the exchange that
uses them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and Path("/dev/nvidiactl").exists():  # as the root's conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw_accel.codecs import coder, exact, exponents  # noqa: E402
from busbw_accel.codecs.kernels import exponents as triton_coder  # noqa: E402
from busbw_accel.communicator import Communicator  # noqa: E402
from busbw_accel.methods import BLOCK  # noqa: E402
from busbw_accel.settings import Settings  # noqa: E402

os.environ.pop("TRITON_INTERPRET", None)
pytestmark = pytest.mark.torch
FORMATS = (torch.float32, torch.bfloat16, torch.float16)
WORDS = {2: torch.int16, 4: torch.int32}
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, -6e-8, 1.0]


@pytest.fixture(autouse=True)
def use_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture
def native(plugin_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """busbw-native codes."""
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    coder._library.cache_clear()
    yield
    coder._library.cache_clear()


def words(row):
    return row.view(WORDS[row.element_size()])


def kinds(length, kind, seed):
    """Rows of each kind: like gradients, with lower bits that are 0, sparse, special, any bits."""
    generator = torch.Generator().manual_seed(seed)
    row = (torch.randn(length, generator=generator) ** 3 * 1e-3).to(kind)
    some = torch.rand(length, generator=generator) < 0.1
    special = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), (length,), generator=generator)]
    size = row.element_size()
    noise = torch.randint(256, (length * size,), generator=generator, dtype=torch.uint8)
    return {
        "gradient": row,
        "narrow": row.bfloat16().to(kind),
        "sparse": row * some,
        "zeros": torch.zeros_like(row),
        "special": special.to(kind),
        "noise": noise.view(kind),
    }


def returned(coded, row, decode):
    out = torch.full_like(row, 7.0)
    decode(coded, out)
    return torch.equal(words(out), words(row))


@given(st.integers(0, 3 * BLOCK), st.sampled_from(FORMATS), st.integers(0, 1 << 30))
@settings(max_examples=25, deadline=None)
def test_rows_come_back_with_the_same_bits(length, kind, seed):
    for name, row in kinds(length, kind, seed).items():
        coded = exponents.encode(row)
        assert coded.numel() <= exponents.most_bytes(length, row.element_size())
        assert returned(coded, row, exponents.decode), name
        assert returned(torch.cat([coded, coded.new_ones(32)]), row, exponents.decode), "and more"


@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=700))
@settings(max_examples=25, deadline=None)
def test_any_halves_come_back(values):
    row = torch.tensor(values, dtype=torch.int32).to(torch.int16)
    for kind in (torch.bfloat16, torch.float16):
        assert returned(exponents.encode(row.view(kind)), row.view(kind), exponents.decode)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [1, 255, 256, 257, 5_003])
def test_native_and_torch_give_the_same_bytes(native, kind, length):
    for name, row in kinds(length, kind, length).items():
        coded = coder.encode(row)
        assert torch.equal(coded, exponents.encode(row)), name
        assert returned(coded, row, coder.decode), name


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [1, 257, 1_003])
def test_kernels_and_torch_give_the_same_bytes(kind, length):
    for name, row in kinds(length, kind, length).items():
        coded = triton_coder.encode(row.to(DEVICE))
        assert torch.equal(coded.cpu(), exponents.encode(row)), name
        assert returned(coded, row.to(DEVICE), triton_coder.decode), name


def test_what_is_zero_takes_no_room():
    row = (torch.randn(64 * BLOCK, generator=torch.Generator().manual_seed(0)) * 1e-3).bfloat16()
    assert exponents.encode(torch.zeros(64 * BLOCK)).numel() == 64 * exponents.HEADER_BYTES
    assert exponents.encode(row).numel() < 0.72 * row.nbytes
    assert exponents.encode(row.float()).numel() < 0.36 * row.float().nbytes
    row[1::2] = 0
    assert exponents.encode(row).numel() < 0.8 * row.nbytes


DECODERS = {"torch": exponents.decode, "kernels": triton_coder.decode, "native": coder.decode}


@pytest.mark.parametrize("name", DECODERS)
def test_bytes_of_another_length_are_errors(name, native):
    row = kinds(3 * BLOCK, torch.float32, 1)["gradient"].to(DEVICE if name == "kernels" else "cpu")
    coded, decode = exponents.encode(row), DECODERS[name]
    for wrong in (coded[:8], coded[:32], coded[: coded.numel() // 2 // 16 * 16]):
        with pytest.raises(ValueError, match="coded block"):
            decode(wrong, torch.empty_like(row))
    damaged = coded.clone()
    damaged[1] ^= 1  # another width
    with pytest.raises(ValueError, match="coded block"):
        decode(damaged, torch.empty_like(row))


def alone(ranks):
    """Ranks without a network, which all seem to have the same gradient."""
    return Communicator(None, ranks, 0, 1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_rows_that_do_not_shrink_are_sent_as_they_are_and_tried_again(ranks, monkeypatch):
    codec, state, coded = exact.Exact(Settings(method="exact")), {}, []
    encode = coder.encode
    monkeypatch.setattr(coder, "encode", lambda row: coded.append(row) or encode(row))
    noise, smooth = (kinds(5_000, torch.bfloat16, 1)[name] for name in ("noise", "gradient"))

    def sent(row, step):
        coded.clear()
        return codec.exchange(row.clone(), alone(ranks), state, step), bool(coded)

    length = 5_000 if ranks == 2 else -(-5_000 // (ranks * BLOCK)) * BLOCK
    plain = 2 * length if ranks == 2 else 8 * length
    steps = exact.PROBE_STEPS
    assert [sent(noise, step) for step in (1, 2, steps, steps + 1)] == [
        (plain, True),
        (plain, False),
        (plain, True),
        (plain, False),
    ]
    assert sent(smooth, 2 * steps - 1) == (plain, False), "not before it is tried again"
    for step in (2 * steps, 2 * steps + 1):
        nbytes, was_coded = sent(smooth, step)
        assert was_coded and nbytes < 0.9 * plain and not state


@pytest.mark.skipif(torch.cuda.is_available(), reason="GPUs code by themselves")
def test_a_host_without_the_native_coder_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(coder.native, "find_optional", lambda: None)
    assert "pip install busbw-native" in coder.note_where_slow()
    monkeypatch.setattr(coder.native, "find_optional", lambda: Path("/libplugin.so"))
    assert coder.note_where_slow() == ""
