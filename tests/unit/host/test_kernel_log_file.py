"""Kernel logs in files, in each form that dmesg, journalctl and syslog write."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.main import guarded
from busbw.host.kernel_log_file import HOSTNAME, LogSource, source
from busbw.host.kernel_log_past import PastLog, read_past

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."
FAR = "mlx5_core 0000:1c:00.0: Port module event: module 1, Cable unplugged"
# Two lines of each, 90 s apart.
FORMS = {
    "dmesg": ("[ 1134.500000] {}", "[ 1224.500000] {}"),
    "dmesg with threads": ("[ 1134.500000][ T1234] {}", "[ 1224.500000] [  C12] {}"),
    "dmesg -r": ("<3>[ 1134.500000] {}", "<6>[ 1224.500000] {}"),
    "dmesg -T": ("[Sun Feb 23 16:24:18 2025] {}", "[Sun Feb 23 16:25:48 2025] {}"),
    "dmesg -x": ("kern  :err   : [ 1134.500000] {}", "kern  :info  : [ 1224.500000] {}"),
    "dmesg --time-format iso": (
        "2025-02-23T16:24:18,285060+00:00 {}",
        "2025-02-23T17:25:48,285060+01:00 {}",
    ),
    "journalctl -k": ("Dec 31 23:59:00 gpu7 kernel: {}", "Jan 01 00:00:30 gpu7 kernel: {}"),
    "journalctl -o short-iso": (
        "2025-02-23T16:24:18+0000 gpu7 kernel: {}",
        "2025-02-23T16:25:48+0000 gpu7 kernel: {}",
    ),
    "kern.log": (
        "Feb 23 16:24:18 gpu7 kernel: [ 1134.500000] {}",
        "Feb 23 16:25:48 gpu7 kernel: [ 9.500000] {}",
    ),
    "/dev/kmsg": ("3,1234,1134500000,-;{}", "6,1235,1224500000,-;{}"),
}


def log_of(text: str) -> PastLog:
    """The kept lines of a file."""
    found = source(text.encode())
    assert isinstance(found, LogSource)
    return read_past(found)


@pytest.mark.parametrize("form", FORMS)
def test_lines_and_their_ages_are_those_of_the_log(form: str) -> None:
    first, second = FORMS[form]
    text = f"{first.format(XID)}\n{second.format(FAR)}\n"
    log = log_of(text)
    assert [line.text for line in log.lines] == [XID, FAR]
    assert [log.age_s(line) for line in log.lines] == pytest.approx([90.0, 0.0])
    named = source(text.encode()).read(HOSTNAME).text  # type: ignore[union-attr]
    assert named == ("gpu7" if "gpu7" in first else None)


def test_lines_of_earlier_boots_and_of_other_programs_are_left_out() -> None:
    first, second = FORMS["kern.log"]
    boot = first.format("Linux version 6.8.0 (build@host)")
    other = "Feb 23 16:24:19 gpu7 systemd[1]: Started NVRM watcher."
    text = "\n".join([first.format(XID), boot, other, second.format(FAR)])
    assert [line.text for line in log_of(text).lines] == [FAR]


def test_an_xid_without_a_time_has_that_of_the_line_before() -> None:
    log = log_of(f"{FORMS['dmesg'][0].format(FAR)}\nkernel: {XID}\nno kernel wrote this\n")
    assert [line.at_s for line in log.lines] == [1134.5, 1134.5]
    assert log_of(XID).lines[0].text == XID


@pytest.mark.parametrize(
    "text", ["", "h1:7:7 [0] NCCL INFO Bootstrap", '{"schema": "busbw.host/1"}', "[2025] step 1"]
)
def test_other_files_are_no_kernel_log(text: str) -> None:
    assert source(text.encode()) is None


@given(st.text(alphabet="0123456789[]<>:. ,;-TJanFeb29\n"))
def test_no_text_breaks_the_reader(text: str) -> None:
    for form in ("[ 1134.500000] {}", "Feb 30 16:24:18 gpu7 kernel: {}"):
        found = source((form.format(text) + "\n" + XID).encode())
        assert found is not None and read_past(found).lines


def test_a_kernel_log_is_judged_as_a_machine_of_which_nothing_else_is_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kern.log"
    first, second = FORMS["kern.log"]
    file.write_text(f"{first.format(XID)}\n{second.format(FAR)}\n")
    assert guarded(["check", "--from", str(file), "--format", "json"]) == 1
    report = json.loads(capfd.readouterr().out)
    failing = [finding for finding in report["findings"] if finding["verdict"] == "fail"]
    assert [finding["id"] for finding in failing] == ["BW005"]
    assert report["host"] == "gpu7"
    assert not {finding["verdict"] for finding in report["findings"]} & {"unknown", "no data"}
    assert guarded(["show", str(file)]) == 0
    assert "Xid 79 (GPU has fallen off the bus), 1.5 min ago" in capfd.readouterr().out
