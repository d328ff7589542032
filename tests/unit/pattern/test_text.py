"""The table of a pattern: sorted by share, with one kind of time, and with what is missing."""

from busbw.core.pattern import Header, Pattern, TrainingSteps
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.text import table


def make_pattern(**header: object) -> Pattern:
    tally = CallTally(Header(source="test", world=8, **header), ordered=True)
    comm = tally.add_comm(8, "a rather long name of a group")
    small = Arguments(
        comm, "all_reduce", 64, 16, "float", "sum", algorithm="CollNetDirect", protocol="Simple"
    )
    large = Arguments(comm, "all_gather", 1 << 30, 1 << 25, "float")
    for _ in range(3):
        tally.add_calls(small, gpu_us=40.0, predicted_us=12.0, skew_us=5.0)
    tally.add_calls(large, gpu_us=60.0, cpu_us=999.0)
    tally.add_calls(Arguments(comm, "send", 8, rank=0, peer=1))
    return tally.to_pattern()


def rows(text: str) -> list[list[str]]:
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("function"))
    return [line.split() for line in lines[start + 1 : lines.index("", start)]]


def test_rows_are_sorted_by_their_share_of_one_kind_of_time() -> None:
    text = table(make_pattern(), 200)
    assert "sorted by share of communication's GPU time" in text and "999" not in text
    assert [(row[0], row[-1]) for row in rows(text)] == [
        ("all_reduce", "66.7"),
        ("all_gather", "33.3"),
        ("send", "0.0"),
    ]
    assert "GPU time 180.0 us of 4 calls" in text
    assert "skew between ranks: 15.00 us in total, 5.00 us at most" in text


def test_predicted_time_has_its_own_column() -> None:
    assert "predicted" in table(make_pattern(), 200) and "12.00 us" in table(make_pattern(), 200)


def test_narrow_tables_lose_columns_but_no_row_and_no_share() -> None:
    for width in (60, 80, 100):
        text = table(make_pattern(), width)
        assert max(map(len, text.splitlines())) <= width
        assert [row[-1] for row in rows(text)] == ["66.7", "33.3", "0.0"]


def test_missing_parts_are_named() -> None:
    text = table(make_pattern(dropped=7, skipped=1, ranks=[3], notes=["the clock went back"]), 100)
    assert "7 calls dropped by what recorded them" in text
    assert "1 record could not be read" in text
    assert "(rank 3 alone)" in text
    assert "note: the clock went back\nnote: 1 of 8 ranks was read, rank 3" in text


def test_record_without_calls_is_a_table_without_rows() -> None:
    assert rows(table(Pattern(Header(source="test")))) == []


def test_steps_of_a_training_have_their_median() -> None:
    steps = TrainingSteps(steps_us=[9e6, 8e6, 10e3, 20e3, 30e3], waits_us=[1e6, 1e6, 1e3, 2e3, 3e3])
    line = "a step took 20.00 ms, the median of 3 steps; 2.000 ms of it waited for gradients\n"
    assert line in table(make_pattern(training=steps), 100)
    untimed = TrainingSteps(steps_us=[10e3, 30e3])
    assert "\na step took 20.00 ms, the median of 2 steps\n" in table(
        make_pattern(training=untimed), 100
    )
