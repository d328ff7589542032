"""The kernel log so far: records of /dev/kmsg, and which of their lines are kept."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.host import kernel_log_past
from busbw.host.kernel_log_past import (
    MAX_LINES,
    NO_RECORDS,
    KernelLogLine,
    PastLog,
    parse,
    read_past,
)
from busbw.host.snapshot import Recording, parse_archive
from busbw.host.source import LiveMachine

XID = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."


def record(at_s: float, text: str, more: str = "") -> bytes:
    return f"3,7,{int(at_s * 1e6)},-;{text}\n{more}".encode()


def test_lines_of_devices_are_kept_with_their_age() -> None:
    records = [
        record(1, "usb 1-2: SerialNumber: 123"),
        record(40, XID),
        record(41.5, "mlx5_core 0000:1b:00.0 eth0: Link down"),
    ]
    log = parse(records, 100.0)
    assert [line.at_s for line in log.lines] == [40.0, 41.5]
    assert (log.begins_s, log.age_s(log.lines[0])) == (1.0, 60.0)


@pytest.mark.parametrize(
    "start", ["Command line: ", "Kernel command line: ", "Unknown kernel command line parameters "]
)
def test_the_kernel_s_command_line_is_left_out(start: str) -> None:
    assert parse(
        [record(0, f"{start}quiet driver_async_probe=mlx5_core rd.key=x"), record(1, XID)], 2.0
    ).lines == (KernelLogLine(1.0, XID),)


def test_fields_below_a_record_are_left_out() -> None:
    assert parse([record(2, XID, " SUBSYSTEM=pci\n DEVICE=+pci:0000:43:00.0\n")], 3.0).lines == (
        KernelLogLine(2.0, XID),
    )


def test_the_newest_lines_of_a_flood_are_kept() -> None:
    log = parse([record(number, XID) for number in range(MAX_LINES + 5)], 1e6)
    assert (len(log.lines), log.lines[0].at_s, log.begins_s) == (MAX_LINES, 5.0, 0.0)


def test_a_flood_of_one_message_takes_no_place_from_others() -> None:
    flood = (
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed"
    )
    storm = "NVRM: Xid (PCI:0000:44:00): 31, pid=9, name=python, MMU Fault"
    disk = "nvme nvme4: Disabling device after reset failure: -19"
    table = "neighbour: arp_cache: neighbor table overflow!"
    texts = [
        XID,
        disk,
        *[flood, storm, table] * (2 * MAX_LINES),
        "EXT4-fs (sda1): Remounting filesystem read-only",
    ]
    log = parse([record(number, text) for number, text in enumerate(texts)], 1e6)
    assert [line.text for line in log.lines[:2]] == [XID, disk] and log.lines[-1].text == texts[-1]
    assert len(log.lines) == 3 + 3 * MAX_LINES
    assert [line.at_s for line in log.lines] == sorted(line.at_s for line in log.lines)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (
            (
                r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed\x0aNVRM:"
                r" fallen off the bus"
            ),
            (
                "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) installed NVRM: fallen"
                " off the bus"
            ),
        ),
        (
            r"NVRM: Xid (PCI:0000:43:00): 31, name=\xc3\xa9t\xc3\xa9\x5c",
            "NVRM: Xid (PCI:0000:43:00): 31, name=été\\",
        ),
        (r"nvidia \x1b[31mred\xe2\x80\xaeRTL", "nvidia [31mred RTL"),
        (r"nvidia \xff\xfe half", "nvidia \ufffd\ufffd half"),
    ],
)
def test_escaped_bytes_of_a_record_are_text_in_one_line(escaped: str, text: str) -> None:
    assert parse([record(1, escaped)], 2.0).lines == (KernelLogLine(1.0, text),)


SECRETS = [
    "password=hunter2",
    "API_KEY: hunter2",
    "token=hunter2",
    "Authorization: Bearer hunter2",
    "https://me:hunter2@host/x",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_in_lines_do_not_reach_a_snapshot_and_do_not_break_it(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [record(1, f"NVRM: Xid (PCI:0000:43:00): 31, pid=9, name=x {secret}"), record(2, XID)]
    monkeypatch.setattr(
        kernel_log_past, "_past_log_json", lambda: msgspec.json.encode(parse(records, 3.0)).decode()
    )
    recording = Recording(LiveMachine())
    log = read_past(recording)
    archive = recording.archive()
    assert "hunter2" not in archive and [line.at_s for line in log.lines] == [1.0, 2.0]
    log_again = read_past(parse_archive(archive))
    assert [line.at_s for line in log_again.lines] == [1.0, 2.0] and log_again.lines[
        1
    ] == log.lines[1]


def test_a_log_without_any_record_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log_past, "KMSG", "/dev/null")
    log = read_past(LiveMachine())
    assert log.lines == () and NO_RECORDS in log.reason


def test_an_empty_log_reaches_back_to_now() -> None:
    assert parse([], 50.0) == PastLog(50.0, 50.0)


def test_a_clock_that_is_behind_gives_no_negative_age() -> None:
    log = parse([record(10, XID)], 9.0)
    assert log.age_s(log.lines[0]) == 0.0


@given(st.lists(st.binary(max_size=60)))
def test_any_bytes_are_read_without_an_error(records: list[bytes]) -> None:
    parse(records, 1.0)


@given(
    st.integers(0, 2**40),
    st.text(st.characters(exclude_characters="\n\\=:", exclude_categories=["Cs"]), max_size=40),
)
def test_time_and_text_come_back(micros: int, text: str) -> None:
    log = parse([f"6,1,{micros},c,more;nvidia {text}\n".encode()], 0.0)
    assert log.lines == (KernelLogLine(micros / 1e6, f"nvidia {text}"),)


def test_this_machine_gives_lines_or_a_reason() -> None:
    log = read_past(LiveMachine())
    assert log.reason.startswith("/dev/kmsg: ") if log.reason else log.now_s >= log.begins_s
