"""Kernel logs in files, in each form that dmesg, journalctl and syslog write."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.host.kernel_log_file import HOSTNAME, LogSource, source
from busbw.host.kernel_log_past import PastLog, read_past
from busbw.host.snapshot import recorded

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."
FAR = "mlx5_core 0000:1c:00.0: Port module event: module 1, Cable unplugged"
# Two lines of each, 90 s apart.
FORMS = {
    "dmesg": ("[ 1134.500000] {}", "[ 1224.500000] {}"),
    "dmesg with threads": ("[ 1134.500000][ T1234] {}", "[ 1224.500000] [  C12] {}"),
    "dmesg -d": ("[ 1134.500000 <    0.000000>] {}", "[ 1224.500000 <   90.000000>] {}"),
    "dmesg -H": ("[Feb23 16:24] {}", "[ +90.000000] {}"),
    "dmesg -e": ("[Feb23 16:24] {}", "[Feb23 16:25] {}"),
    "dmesg -r": ("<3>[ 1134.500000] {}", "<6>[ 1224.500000] {}"),
    "dmesg -T": ("[Sun Feb 23 16:24:18 2025] {}", "[Sun Feb 23 16:25:48 2025] {}"),
    "dmesg -x": ("kern  :err   : [ 1134.500000] {}", "kern  :info  : [ 1224.500000] {}"),
    "dmesg -L": ("\x1b[32m[ 1134.500000] \x1b[0m{}", "\x1b[32m[ 1224.500000] \x1b[0m{}"),
    "dmesg --time-format iso": (
        "2025-02-23T16:24:18,285060+00:00 {}",
        "2025-02-23T17:25:48,285060+01:00 {}",
    ),
    "journalctl -k": ("Dec 31 23:59:00 gpu7 kernel: {}", "Jan 01 00:00:30 gpu7 kernel: {}"),
    "journalctl -o short-iso": (
        "2025-02-23T16:24:18+0000 gpu7 kernel: {}",
        "2025-02-23T16:25:48+0000 gpu7 kernel: {}",
    ),
    "journalctl -o short-full": (
        "Sun 2025-02-23 16:24:18 UTC gpu7 kernel: {}",
        "Sun 2025-02-23 16:25:48 UTC gpu7 kernel: {}",
    ),
    "journalctl -o short-unix": (
        "1740327858.285060 gpu7 kernel: {}",
        "1740327948.285060 gpu7 kernel: {}",
    ),
    "journalctl -o short-monotonic": (
        "[ 1134.500000] gpu7 kernel: {}",
        "[ 1224.500000] gpu7 kernel: {}",
    ),
    "kern.log": (
        "Feb 23 16:24:18 gpu7 kernel: [ 1134.500000] {}",
        "Feb 23 16:25:48 gpu7 kernel: [ 9.500000] {}",
    ),
    "kern.log on February 29": (
        "Feb 29 23:59:00 gpu7 kernel: {}",
        "Mar  1 00:00:30 gpu7 kernel: {}",
    ),
    "RFC 5424": (
        "<3>1 2025-02-23T16:24:18.285060Z gpu7 kernel - - - {}",
        "<6>1 2025-02-23T16:25:48.285060Z gpu7 kernel - - - {}",
    ),
    "container": (
        "2025-02-23T16:24:18.285060123Z stdout F [ 1134.500000] {}",
        "2025-02-23T16:25:48.285060123Z stderr F [ 1224.500000] {}",
    ),
    "quoted": (">  [ 1134.500000] {}", ">  [ 1224.500000] {}"),
    "pdsh": ("gpu7: [ 1134.500000] {}", "gpu7: [ 1224.500000] {}"),
    "/dev/kmsg": ("3,1234,1134500000,-;{}", "6,1235,1224500000,-;{}"),
}
OOM = "Out of memory: Killed process 42 (python3) total-vm:1kB, anon-rss:1kB"
BOOT = "Linux version 6.8.0 (build@host)"


def log_of(text: str) -> PastLog:
    """The kept lines of a file."""
    found = source(text.encode(), "kern.log")
    assert isinstance(found, LogSource)
    return read_past(found)


def texts(text: str) -> list[str]:
    """Those lines without their times."""
    return [line.text for line in log_of(text).lines]


@pytest.mark.parametrize("form", FORMS)
def test_lines_and_their_ages_are_those_of_the_log(form: str) -> None:
    first, second = FORMS[form]
    for line in (XID, OOM):  # a log without an Xid is one too
        text = f"{first.format(line)}\n{second.format(FAR)}\n"
        log = log_of(text)
        assert [kept.text for kept in log.lines] == [line, FAR]
        assert log.age_s(log.lines[0]) == pytest.approx(60.0 if "-e" in form else 90.0)
        named = source(text.encode(), "kern.log").read(HOSTNAME).text  # type: ignore[union-attr]
        assert named == ("gpu7" if "gpu7" in first else None)


def test_the_journal_as_json() -> None:
    entry = {"__REALTIME_TIMESTAMP": "1740327858285060", "_HOSTNAME": "gpu7"}
    kernel = json.dumps({**entry, "_TRANSPORT": "kernel", "MESSAGE": XID})
    other = json.dumps({**entry, "_TRANSPORT": "syslog", "MESSAGE": OOM})
    assert texts(f"{kernel}\n{other}\n") == [XID]


def test_of_earlier_boots_only_a_panic_is_kept() -> None:
    first, second = FORMS["kern.log"]
    panic = "Kernel panic - not syncing: Fatal exception"
    earlier = [first.format(XID), first.format(panic), first.format(BOOT)]
    assert texts("\n".join([*earlier, second.format(FAR)])) == [panic, FAR]


def test_lines_of_other_programs_are_not_judged() -> None:
    first, second = FORMS["kern.log"]
    other = f"Feb 23 16:24:19 gpu7 gpud[77]: saw {XID}"
    end = "Feb 24 16:25:48 gpu7 systemd[1]: Started."
    log = log_of("\n".join([first.format(FAR), other, end]))
    assert [line.text for line in log.lines] == [FAR]
    assert log.age_s(log.lines[0]) == pytest.approx(86400 + 90), "the last line of any program"
    first, second = FORMS["journalctl -o short-iso"]
    other = second.format(OOM).replace("kernel", "myapp[77]")
    assert texts(f"{first.format(FAR)}\n{other}\n") == [FAR]


def test_a_log_whose_last_line_comes_first() -> None:
    first, second = FORMS["journalctl -o short-iso"]
    assert texts(f"{second.format(XID)}\n{first.format(BOOT)}\n{first.format(OOM)}\n") == [XID]


def test_logs_of_several_hosts_are_refused() -> None:
    first, second = FORMS["kern.log"]
    with pytest.raises(UsageError, match=r"kern.log: a kernel log of 2 hosts: gpu7, gpu8"):
        log_of(f"{first.format(XID)}\n{second.format(BOOT)}\n".replace("48 gpu7", "48 gpu8"))


def test_an_xid_without_a_time_has_that_of_the_line_before() -> None:
    first, _ = FORMS["dmesg"]
    log = log_of(f"kernel: {XID}\n{first.format(FAR)}\nkernel: {XID}\nno kernel wrote this\n")
    assert len({line.at_s for line in log.lines}) == 1 and len(log.lines) == 3
    assert texts(f"{XID}\n{OOM}\n") == [XID, OOM]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h1:7:7 [0] NCCL INFO Bootstrap",
        "2025-02-23 16:24:18 INFO compiling kernel: gemm",
        "2025-02-23 16:24:18,123 compiling kernel: gemm",
        "[   12.345678] some application",
        json.dumps({"schema": "busbw.host/1", "text": XID}),
    ],
)
def test_other_files_are_no_kernel_log(text: str) -> None:
    assert source(text.encode(), "file") is None


def test_a_snapshot_in_which_an_xid_stands_is_a_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "node.jsonl"
    file.write_text(
        json.dumps({"schema": "busbw.host/1"})
        + "\n"
        + json.dumps({"call": "x", "text": XID})
        + "\n"
    )
    assert not isinstance(recorded(file), LogSource)


def test_packed_and_converted_files(tmp_path: Path) -> None:
    first, second = FORMS["dmesg"]
    text = f"{first.format(XID)}\n{second.format(FAR)}\n"
    for data in (gzip.compress(text.encode()), text.replace("\n", "\r\n").encode("utf-16")):
        file = tmp_path / "kern.log"
        file.write_bytes(data)
        assert [line.text for line in read_past(recorded(file)).lines] == [XID, FAR]


@given(st.text(alphabet="0123456789[]<>:. ,;-+TJanFeb29{}\n"))
def test_no_text_breaks_the_reader(text: str) -> None:
    for form in ("[ 1134.500000] {}", "Feb 30 16:24:18 gpu7 kernel: {}"):
        found = source((form.format(text) + "\n" + XID).encode(), "file")
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
    shown = " ".join(capfd.readouterr().out.split())
    assert "Xid 79 (GPU has fallen off the bus), 1.5 min before the log ends" in shown
