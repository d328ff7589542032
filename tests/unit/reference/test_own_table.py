"""A user's own table: what its reader refuses, and what a change does to the file."""

import multiprocessing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.model.reference.curves import CurveSource, ReferenceCurve, ReferenceTable, built_in
from busbw.reference.additions import with_curves, without_run
from busbw.reference.own_table import change, encoded, parse, read

M, G = 1 << 20, 1 << 30
SOURCE = CurveSource(key="a", title="a.json, h1")
CURVE = ReferenceCurve(
    source="a",
    run="a",
    gpu="h100",
    per_host=8,
    collective="all_reduce",
    dtype="float",
    nccl="2.27.3",
    sizes=(M, G),
    times_us=(40.0, 4000.0),
)


def table(*changes: dict[str, Any]) -> bytes:
    curves = [msgspec.structs.replace(CURVE, **values) for values in changes]
    return encoded(ReferenceTable(sources=[SOURCE], curves=curves))


def test_published_curves_pass_the_checks_of_own_ones() -> None:
    known = built_in()
    text = encoded(
        ReferenceTable(sources=list(known.sources.values()), curves=list(known.published))
    )
    assert tuple(parse(text, "table.json").curves) == known.published


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (table({}, {"gpu": "h10"}), "t.json, line 5: run 'a': unknown GPU 'h10'"),
        (table({"collective": "all_redcue"}), "line 4: run 'a': unknown collective"),
        (table({"dtype": "flaot"}), "unknown type 'flaot'"),
        (table({"times_us": (0.04, 4.0)}), "1 MiB in 0.04 us is 45875 GB/s, and a GPU's links"),
        (table({"times_us": (40e3, 4e6)}), "1 GiB took 4.000 s, and"),
        (table({"sizes": (G, M)}), "1 MiB stands after 1 GiB"),
        (table({"sizes": (M, M)}), "1048576 bytes stands twice"),
        (table({"sizes": (M,)}), "1 sizes and 2 times"),
        (table({"times_us": (40.0, -1.0)}), "1 GiB took -1 us"),
        (table({}, {}), "line 5: run 'a': all_reduce of float stands twice"),
        (table({}, {"run": "b"}), "the same times are there already, as run 'a'"),
        (
            table({}, {"run": "b", "times_us": (40.0, 13000.0)}),
            "1 GiB took 13.00 ms, and 4.000 ms in run 'a' of the same job",
        ),
        (table({"source": "c"}), "source 'c' is not in the file"),
        (table({"per_host": 16}), "16 ranks on a host, which has at most 8 H100"),
        (table({"hosts": 2}), "the NICs of its 2 hosts are unknown"),
        (table({"per_host": 1}), "1 hosts with 1 ranks each"),
        (table({}).replace(b'"per_host":8', b'"per_host":"8"'), "line 4: per_host: expected `int`"),
        (table({}).replace(b"reference/1", b"reference/2"), "of the format busbw.reference/2"),
        (table({}).replace(b"reference/1", b"result/1"), "no table of reference curves"),
        (table({})[:-30], "t.json: input data was truncated"),
        (b'{"schema":\n\n}', "t.json, line 3: JSON is malformed"),
        (b"", "t.json: input data was truncated"),
        (b"\xff\xfe", "t.json"),
    ],
)
def test_what_the_reader_refuses(data: bytes, text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(data, "t.json")
    assert text.lower() in error.value.message.lower()
    assert error.value.hint


@given(data=st.data())
def test_garbage_is_refused_or_read(data: st.DataObject) -> None:
    """Bytes of a table that were changed anywhere give a table or a UsageError."""
    text = bytearray(table({}, {"run": "b", "nccl": ""}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = min(len(text), at + data.draw(st.integers(0, 4)))
        text[at:end] = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(WORDS)))
    try:
        parsed = parse(bytes(text), "t.json")
    except UsageError as error:
        assert error.message.startswith("t.json")
    else:
        assert parse(encoded(parsed), "t.json") == parsed


WORDS = [b"[", b"]", b"{", b'"', b"null", b"1e999", b"-1", b"0", b"9" * 30, b"\n", b"\\u0000"]


def test_a_refused_change_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "new" / "own.json"
    change(file, lambda before: with_curves(before, [SOURCE], [CURVE]))
    kept = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    for refused in ({"run": "b"}, {"run": "b", "gpu": "x"}, {"run": "b", "times_us": (1.0, 2.0)}):
        more = msgspec.structs.replace(CURVE, **refused)
        with pytest.raises(UsageError):
            change(file, lambda before, more=more: with_curves(before, [], [more]))
    assert file.read_bytes() == kept
    assert list(file.parent.iterdir()) == [file]
    change(file, lambda before: without_run(before, "a"))
    assert read(file) == ReferenceTable(sources=[], curves=[])


def test_a_link_and_a_mode_stay_and_a_folder_is_refused(tmp_path: Path) -> None:
    file, link = tmp_path / "own.json", tmp_path / "link.json"
    file.write_bytes(table({}))
    file.chmod(0o664)
    link.symlink_to(file)
    change(link, lambda before: without_run(before, "a"))
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o664
    with pytest.raises(UsageError):
        read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NoMeasurement):
        change(tmp_path / "file" / "own.json", lambda before: before)


def add(file: Path, number: int) -> None:
    run = f"run{number}"
    source = CurveSource(key=run, title=run)
    times = 40.0 + number, 4000.0 + number
    curve = msgspec.structs.replace(CURVE, run=run, source=run, times_us=times)
    change(file, lambda before: with_curves(before, [source], [curve]))


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    spawn = multiprocessing.get_context("fork")
    writers = [spawn.Process(target=add, args=(file, number)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    assert sorted(curve.run for curve in read(file).curves) == [f"run{n}" for n in range(8)]


def test_errors_are_busbw_errors() -> None:
    with pytest.raises(BusbwError):
        parse(b"[" * 100_000, "t.json")
