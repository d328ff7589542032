"""The kernel log so far: records of /dev/kmsg, and which of their lines are kept."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.host.past_kernel_log import MOST_LINES, Line, PastLog, parse, read_past
from busbw.host.source import Live

XID = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."


def record(at_s: float, text: str, more: str = "") -> bytes:
    return f"3,7,{int(at_s * 1e6)},-;{text}\n{more}".encode()


def test_lines_of_devices_are_kept_with_their_age() -> None:
    records = [record(1, "usb 1-2: SerialNumber: 123"), record(40, XID), record(41.5, "mlx5_core 0000:1b:00.0 eth0: Link down")]
    log = parse(records, 100.0)
    assert [line.at_s for line in log.lines] == [40.0, 41.5]
    assert (log.begins_s, log.age_s(log.lines[0])) == (1.0, 60.0)


def test_fields_below_a_record_are_left_out() -> None:
    assert parse([record(2, XID, " SUBSYSTEM=pci\n DEVICE=+pci:0000:43:00.0\n")], 3.0).lines == (Line(2.0, XID),)


def test_the_newest_lines_of_a_flood_are_kept() -> None:
    log = parse([record(number, XID) for number in range(MOST_LINES + 5)], 1e6)
    assert (len(log.lines), log.lines[0].at_s, log.begins_s) == (MOST_LINES, 5.0, 0.0)


def test_an_empty_log_reaches_back_to_now() -> None:
    assert parse([], 50.0) == PastLog(50.0, 50.0)


def test_a_clock_that_is_behind_gives_no_negative_age() -> None:
    log = parse([record(10, XID)], 9.0)
    assert log.age_s(log.lines[0]) == 0.0


@given(st.lists(st.binary(max_size=60)))
def test_any_bytes_are_read_without_an_error(records: list[bytes]) -> None:
    parse(records, 1.0)


@given(st.integers(0, 2**40), st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=40))
def test_time_and_text_come_back(micros: int, text: str) -> None:
    log = parse([f"6,1,{micros},c,more;nvidia {text}\n".encode()], 0.0)
    assert log.lines == (Line(micros / 1e6, f"nvidia {text}"),)


def test_this_machine_gives_lines_or_a_reason() -> None:
    log = read_past(Live())
    assert log.reason.startswith("/dev/kmsg: ") if log.reason else log.now_s >= log.begins_s
