"""The calls made for a size: the memory cap, counts and columns, and the sources of alltoallv's
bytes.
"""

from pathlib import Path

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.sweep import Series, SweepSpec
from busbw.measure.plan import (
    GIB,
    Calls,
    buffer_bytes,
    capped_max,
    memory_cap,
    require_power_of_two,
)

MATRIX = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE"
SCALE = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE"
SPREAD = "NCCL_TESTS_ALLTOALLV_SPREAD"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (MATRIX, SCALE, SPREAD):
        monkeypatch.delenv(name, raising=False)


def calls(
    name: str,
    ranks: int = 2,
    kind: str = "float",
    size: int = 4096,
    unalign: int = 0,
    max_bytes: int | None = None,
) -> Calls:
    spec = SweepSpec(
        collective=name,
        min_bytes=size,
        max_bytes=size if max_bytes is None else max_bytes,
        unalign=unalign,
    )
    return Calls(spec, Series(kind, "", -1), ranks)


@pytest.mark.parametrize(
    ("memory", "reserve_gib"),
    [
        (12, 1),
        (16, 1),
        (24, 2),
        (32, 2),
        (40, 3),
        (48, 3),
        (64, 4),
        (80, 4),
        (96, 4),
        (141, 4),
        (192, 4),
        (288, 4),
    ],
)
def test_the_memory_cap_leaves_a_reserve(memory: int, reserve_gib: int) -> None:
    usable_bytes = (memory - reserve_gib - 1) * GIB
    assert (
        memory_cap(SweepSpec(collective="all_reduce", check=0), memory * GIB) == usable_bytes // 2
    )
    assert (
        memory_cap(SweepSpec(collective="all_reduce", check=1), memory * GIB) == usable_bytes // 3
    )


def test_the_cap_of_an_h200_of_141_gib_by_hand() -> None:
    # (141 - 4 - 1) GiB / 3
    assert memory_cap(SweepSpec(collective="all_reduce"), 141 * GIB) == 48676296021
    assert memory_cap(SweepSpec(collective="all_reduce", check=0), 141 * GIB) == 68 * GIB
    # A byte over a multiple of 16 GiB rounds the reserve up.
    assert (
        memory_cap(SweepSpec(collective="all_reduce", check=0), 16 * GIB + 2) == (13 * GIB + 2) // 2
    )


def test_the_cap_of_a_small_machine_is_half_its_memory() -> None:
    for memory in (1 << 20, GIB, 2 * GIB):
        assert memory_cap(SweepSpec(collective="all_reduce"), memory) == memory // 2 // 3


def test_the_cap_only_ever_lowers_the_largest_size() -> None:
    small, large = (
        SweepSpec(collective="all_reduce", max_bytes=size) for size in (1 << 20, 1 << 40)
    )
    assert capped_max(small, 80 * GIB) == 1 << 20
    assert capped_max(large, 80 * GIB) == 25 * GIB
    assert capped_max(large, None) == 1 << 40


def test_buffers_have_room_for_unaligned_starts() -> None:
    assert buffer_bytes(SweepSpec(collective="all_reduce"), 4096) == 4096
    assert buffer_bytes(SweepSpec(collective="all_reduce", unalign=3), 4096) == 4096 + 24


@pytest.mark.parametrize(("kind", "shift"), [("int8", 3), ("half", 6), ("double", 24)])
def test_unalign_counts_elements_and_adds_to_the_rotation(kind: str, shift: int) -> None:
    assert (
        calls("all_reduce", kind=kind, unalign=3)
        .at(4096, in_place=False, shift_bytes=512)
        .shift_bytes
        == 512 + shift
    )


@pytest.mark.parametrize(
    ("name", "size", "count", "bytes_"),
    [
        ("all_reduce", 4096, 1024, 4096),
        ("all_gather", 4096, 256, 4096),
        ("reduce_scatter", 4096, 256, 4096),
        ("alltoall", 4096, 256, 4096),
        ("hypercube", 4096, 256, 3072),
        ("broadcast", 4096, 1024, 4096),
        ("sendrecv", 4096, 1024, 4096),
        ("gather", 4096, 256, 4096),
    ],
)
def test_columns_of_4096_bytes_of_float_on_four_ranks(
    name: str, size: int, count: int, bytes_: int
) -> None:
    collective_calls = calls(name, ranks=4)
    assert collective_calls.moved_bytes(collective_calls.at(4096, in_place=False)) == (
        size,
        count,
        bytes_,
    )


@pytest.mark.parametrize(
    "name",
    ["all_gather", "reduce_scatter", "gather", "scatter", "alltoall", "alltoallv", "hypercube"],
)
def test_parts_of_less_than_16_bytes_are_empty(name: str) -> None:
    collective_calls = calls(name, size=8)
    assert collective_calls.moved_bytes(collective_calls.at(8, in_place=False)) == (0, 0, 0)


def test_generated_alltoallv_moves_the_largest_total(monkeypatch: pytest.MonkeyPatch) -> None:
    collective_calls = calls("alltoallv", ranks=4, size=6144)
    call = collective_calls.at(6144, in_place=False)
    assert call.layout.matrix[0] == (0, 256, 512, 768)
    assert collective_calls.moved_bytes(call) == (6144, 384, 6144)
    monkeypatch.setenv(SPREAD, "0")
    assert calls("alltoallv", ranks=4, size=6144).at(6144, in_place=False).layout.matrix[0] == (
        384,
        384,
        384,
        384,
    )


@pytest.mark.parametrize(
    ("ranks", "size", "matrix"), [(1, 64, ((16,),)), (1, 8, ((0,),)), (2, 48, ((0, 8), (8, 0)))]
)
def test_generated_alltoallv_splits_whole_parts_of_16_bytes(
    ranks: int, size: int, matrix: tuple[tuple[int, ...], ...]
) -> None:
    collective_calls = calls("alltoallv", ranks=ranks, size=size)
    call = collective_calls.at(size, in_place=False)
    assert call.layout.matrix == matrix
    total = 4 * sum(matrix[0])
    assert collective_calls.moved_bytes(call) == (total, call.layout.count, total)


def test_a_matrix_file_gives_each_pair_its_bytes_and_no_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "matrix"
    file.write_text("0 640\n160 40\n")
    monkeypatch.setenv(MATRIX, str(file))
    monkeypatch.setenv(SCALE, "2")
    collective_calls = calls("alltoallv")
    call = collective_calls.at(4096, in_place=False)
    assert call.layout.matrix == ((0, 320), (80, 20))
    assert collective_calls.moved_bytes(call) == (1360, 0, 1360)
    assert (call.send, call.recv) == (320, 340), (
        "the largest totals, so that the call fits every rank"
    )


@pytest.mark.parametrize(
    ("text", "variables", "max_bytes", "words"),
    [
        ("0 64\n64 0\n", {}, 8192, f"{MATRIX} needs one size, but -b and -e differ"),
        ("0 4096\n64 4096\n", {}, 4096, "a rank moves 8192 bytes, more than -e 4096"),
        ("0 64\n64 0\n", {SCALE: "x"}, 4096, f"{SCALE}=x: not a number from 0 to inf"),
        ("0 64\n64 0\n", {SCALE: "-1"}, 4096, f"{SCALE}=-1: not a number"),
        ("0 64\n", {}, 4096, "1 rows for 2 ranks"),
        (None, {}, 4096, "No such file or directory"),
        (None, {MATRIX: "", SPREAD: "1.5"}, 4096, f"{SPREAD}=1.5: not a number from 0 to 1"),
        (None, {MATRIX: "", SPREAD: "nan"}, 4096, f"{SPREAD}=nan: not a number from 0 to 1"),
    ],
)
def test_invalid_alltoallv_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str | None,
    variables: dict[str, str],
    max_bytes: int,
    words: str,
) -> None:
    file = tmp_path / "matrix"
    if text is not None:
        file.write_text(text)
    for name, value in ({MATRIX: str(file)} | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        calls("alltoallv", max_bytes=max_bytes).at(4096, in_place=False)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_binary_matrix_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "matrix"
    file.write_bytes(b"\xff\xfe\x00")
    monkeypatch.setenv(MATRIX, str(file))
    with pytest.raises(UsageError, match="matrix"):
        calls("alltoallv").at(4096, in_place=False)


def test_a_hypercube_is_of_a_power_of_two() -> None:
    for name, ranks in (("hypercube", 1), ("hypercube", 4), ("all_reduce", 3)):
        require_power_of_two(BY_NAME[name], ranks)
    with pytest.raises(UsageError, match="hypercube on 6 ranks: their number is not") as raised:
        require_power_of_two(BY_NAME["hypercube"], 6)
    assert raised.value.hint == "-np 4, or -np 8"
