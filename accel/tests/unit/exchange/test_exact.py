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
from busbw_accel.codecs.kernels import exponents as _in_interpreter  # noqa: E402, F401
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
def in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels write and read messages, on CPUs in its interpreter."""
    monkeypatch.setattr(coder.kernels, "usable", lambda row: True)


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


def written(row):
    """A message, with the bytes that are to be sent, and others behind them."""
    message = torch.full((coder.message_bytes(row),), 255, dtype=torch.uint8, device=row.device)
    coder.write(row, message)
    length = int(message.view(torch.int64)[0])
    message[length:] = 77
    return message, length


def check_messages(length, kind):
    for name, row in kinds(length, kind, length).items():
        message, sent = written(row.to(DEVICE))
        coded = exponents.encode(row)
        pays = coded.numel() <= coder.MOST_SHARE * row.nbytes
        content = coded if pays else row.view(torch.uint8)
        assert int(message.view(torch.int64)[1]) == length, name
        assert torch.equal(message[coder.PROLOGUE :][: content.numel()].cpu(), content), name
        assert coder.PROLOGUE + content.numel() <= sent <= message.numel() and sent % 16 == 0
        assert returned(message, row.to(DEVICE), coder.read), name


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [1, 255, 256, 257, 5_003])
def test_native_and_torch_give_the_same_bytes(native, kind, length):
    for row in kinds(length, kind, length).values():
        assert torch.equal(coder._encoded(row), exponents.encode(row))
    if DEVICE == "cpu":
        check_messages(length, kind)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [1, 257, 1_003])
def test_kernels_and_torch_give_the_same_bytes(in_kernels, kind, length):
    check_messages(length, kind)


def test_what_is_zero_takes_no_room():
    row = (torch.randn(64 * BLOCK, generator=torch.Generator().manual_seed(0)) * 1e-3).bfloat16()
    assert exponents.encode(torch.zeros(64 * BLOCK)).numel() == 64 * exponents.HEADER_BYTES
    assert exponents.encode(row).numel() < 0.72 * row.nbytes
    assert exponents.encode(row.float()).numel() < 0.36 * row.float().nbytes
    row[1::2] = 0
    assert exponents.encode(row).numel() < 0.8 * row.nbytes


def test_coded_bytes_that_end_early_or_are_damaged_are_errors(native):
    row = kinds(3 * BLOCK, torch.float32, 1)["gradient"]
    coded = exponents.encode(row)
    damaged = coded.clone()
    damaged[1] ^= 1  # another width
    for wrong in (coded[:8], coded[:32], coded[: coded.numel() // 2 // 16 * 16], damaged):
        for decode in (exponents.decode, coder._decode):
            with pytest.raises(ValueError, match="coded block"):
                decode(wrong, torch.empty_like(row))


def with_wrong_heads(message, sent):
    """Messages of other lengths, or of a row with an element more. The last ends before its bytes
    do.
    """
    whole, elements, wrong = message.numel(), 3 * BLOCK, []
    heads = [(length, elements) for length in (-1, 0, 24, sent - 16, whole + 16, whole)]
    for head in [(sent, elements + 1), *heads]:
        wrong.append(message.clone())
        wrong[-1][: coder.PROLOGUE].view(torch.int64).copy_(torch.tensor(head))
    return [*wrong[:-1], wrong[-1][:sent]]


def test_a_message_that_is_none_is_an_error(native):
    row = kinds(3 * BLOCK, torch.float32, 1)["gradient"]
    for wrong in with_wrong_heads(*written(row)):
        with pytest.raises(ValueError, match=r"coded block|a row of 76[89] elements"):
            coder.read(wrong, torch.empty_like(row))


def test_kernels_make_what_is_wrong_nan_and_tell_the_host_later(in_kernels):
    row = kinds(3 * BLOCK, torch.float32, 1)["gradient"].to(DEVICE)
    right, sent = written(row)
    widths = right.clone()
    widths[coder.PROLOGUE + 1] ^= 1  # of the first block
    for message in (widths, *with_wrong_heads(right, sent)):
        out = torch.zeros_like(row)
        coder.read(message, out)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        assert out[-BLOCK:].isnan().all() or message is widths
        if message is widths:
            assert out[:BLOCK].isnan().all()
            assert torch.equal(out[BLOCK:], row[BLOCK:])
        with pytest.raises(ValueError, match="coded block"):
            coder.check()
        coder.check()


class Broken(Communicator):
    """Ranks whose exchanges fail."""

    def swap(self, messages):
        raise RuntimeError("the peer closed the connection")


def test_what_a_failed_exchange_leaves_does_not_hide_why_it_failed(in_kernels):
    row = torch.zeros(BLOCK, device=DEVICE)
    coder.read(torch.full((coder.message_bytes(row),), 255, dtype=torch.uint8, device=DEVICE), row)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="the peer closed"):
        exact.Exact(Settings(method="exact")).exchange(row, Broken(None, 2, 0, 1), {}, 0)
    assert coder.forget(), "the message was wrong too"
    coder.check()


def alone(ranks):
    """Ranks without a network, which all seem to have the same gradient."""
    return Communicator(None, ranks, 0, 1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_rows_that_do_not_shrink_are_sent_as_they_are(ranks):
    codec, elements = exact.Exact(Settings(method="exact")), 6 * 7 * BLOCK
    rows = kinds(elements, torch.bfloat16, 1)
    sent = {
        name: int(codec.exchange(rows[name].clone(), alone(ranks), {}, 0))
        for name in ("noise", "gradient")
    }
    # two ranks send a row; three send two thirds of one, and of the sum
    plain, messages = (2 * elements, 1) if ranks == 2 else (2 * elements * 4 // 3, 4)
    assert sent["noise"] == plain + messages * coder.PROLOGUE
    assert sent["gradient"] < 0.9 * plain


@pytest.mark.skipif(torch.cuda.is_available(), reason="GPUs code by themselves")
def test_a_host_without_the_native_coder_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(coder.native, "find_optional", lambda: None)
    assert "pip install busbw-native" in coder.note_where_slow()
    monkeypatch.setattr(coder.native, "find_optional", lambda: Path("/libplugin.so"))
    assert coder.note_where_slow() == ""
