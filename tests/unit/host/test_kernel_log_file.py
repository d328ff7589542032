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
    "dmesg --time-format delta": ("[<    0.000000>] {}", "[<   90.000000>] {}"),
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
    "journalctl -o short-full of a zone without a name": (
        "Sun 2025-02-23 16:24:18 +03 gpu7 kernel: {}",
        "Sun 2025-02-23 16:25:48 +03 gpu7 kernel: {}",
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
    "SONiC": (
        "Dec 31 23:59:00.103350 gpu7 INFO kernel: [10601.214044] {}",
        "Jan 01 00:00:30.103350 gpu7 NOTICE kernel: [10691.214044] {}",
    ),
    "without a host": ("Feb 23 16:24:18 kernel: {}", "Feb 23 16:25:48  kernel: {}"),
    "logread": (
        "> Wed Feb 24 00:35:21 2021 kern.info kernel: [16300.998425] {}",
        "> Wed Feb 24 00:36:51 2021 kern.warn kernel: [16390.998425] {}",
    ),
    "RFC 5424": (
        "<3>1 2025-02-23T16:24:18.285060Z gpu7 kernel - - - {}",
        "<6>1 2025-02-23T16:25:48.285060Z gpu7 kernel - - - {}",
    ),
    "RFC 5424 with structured data": (
        '1 2025-02-23T16:24:18.28Z gpu7 kernel - - [timeQuality tzKnown="1"] {}',
        '1 2025-02-23T16:25:48.28Z gpu7 kernel - - [timeQuality tzKnown="1"] {}',
    ),
    "RFC 5424 over TCP": (
        "120 <3>1 2025-02-23T16:24:18.285060Z gpu7 kernel - - - {}",
        "96 <6>1 2025-02-23T16:25:48.285060Z gpu7 kernel - - - {}",
    ),
    "container": (
        "2025-02-23T16:24:18.285060123Z stdout F [ 1134.500000] {}",
        "2025-02-23T16:25:48.285060123Z stderr F [ 1224.500000] {}",
    ),
    "quoted": (">  [ 1134.500000] {}", ">  [ 1224.500000] {}"),
    "pdsh": ("gpu7: [ 1134.500000] {}", "gpu7: [ 1224.500000] {}"),
    "talosctl dmesg": (
        "gpu7: kern: warning: [2025-02-23T16:24:18.285060123Z]: {}",
        "gpu7: kern:    info: [2025-02-23T16:25:48.285060123Z]: {}",
    ),
    "syslogd without a blank": (
        "2025-02-23T16:24:18 gpu7 kernel:[ 1134.500000] {}",
        "2025-02-23T16:25:48 gpu7 kernel:[ 1224.500000] {}",
    ),
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


LOST = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
WHOLE = " ".join(LOST)


def kept(text: str) -> set[str]:
    """The lines that are kept, less the first ones of a message that was joined."""
    return set(texts(text)) - set(LOST)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indent", ["", "  ", "\t", "                           "])
def test_lines_below_a_message_belong_to_it(form: str, indent: str) -> None:
    first, second = FORMS[form]
    below = "\n".join(f"{indent}{line}" for line in LOST[1:])
    assert kept(f"{first.format(LOST[0])}\n{below}\n{second.format(FAR)}\n") == {WHOLE, FAR}
    at_end = f"{second.format(FAR)}\n{second.format(LOST[0])}\n{below}\n"
    assert WHOLE in kept(at_end)


@pytest.mark.parametrize("form", FORMS)
def test_a_message_whose_lines_have_times_of_their_own(form: str) -> None:
    first, second = FORMS[form]
    parts = [first.format(LOST[0]), *[second.format(line) for line in LOST[1:]]]
    assert kept("\n".join(parts)) == {WHOLE}
    between = [second.format(FAR)] * 3
    apart = [parts[0], *between, parts[1], *between, parts[2]]
    assert kept("\n".join(apart)) == {WHOLE, FAR}


@pytest.mark.parametrize("prefix", ["", "gpu7: ", "kern.log:", "> ", "2025-02-23T16:24:18.28Z "])
def test_prefixes_before_an_indent(prefix: str) -> None:
    lines = ["[ 1134.500000] " + LOST[0], *[f"               {line}" for line in LOST[1:]]]
    assert kept("\n".join(prefix + line for line in lines)) == {WHOLE}


def test_messages_on_two_gpus_at_once() -> None:
    first, _ = FORMS["dmesg"]
    other = LOST[0].replace("b3", "b4")
    lines = [LOST[0], other, LOST[1], LOST[1], LOST[2], LOST[2]]
    both = {WHOLE, WHOLE.replace("b3", "b4")}
    assert kept("\n".join(map(first.format, lines))) - {other} == both


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LOST),
        f"{LOST[0]}\n{LOST[2]}",
        f"{LOST[0]} {LOST[1].removeprefix('NVRM: ')}\n{LOST[2]}",
        WHOLE,
        f"Linux version 6.8.0\nCommand line: ro\nsome text\nbond0: is up\n{WHOLE}",
        "Nov 27 03:14:50 gpu7 kernel: " + "#012".join(LOST),
        r"3,1234,1134500000,-;"
        + r"\x0a".join(LOST)
        + "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0",
    ],
)
def test_the_lines_of_a_message_alone_are_a_log(text: str) -> None:
    found = [line for line in kept(text) if "fallen off the bus" in line]
    assert len(found) == 1 and "0000:b3:00.0" in found[0]


ENTRY = {"__REALTIME_TIMESTAMP": "1740327858285060", "_HOSTNAME": "gpu7", "_TRANSPORT": "kernel"}


@pytest.mark.parametrize("message", [XID, list(f"\x1b[31m{XID}\x1b[0m".encode()), [XID, XID]])
def test_the_journal_as_json(message: object) -> None:
    lines = [
        json.dumps({**ENTRY, "MESSAGE": None}),
        json.dumps({**ENTRY, "MESSAGE": message}),
        json.dumps({**ENTRY, "_TRANSPORT": "syslog", "MESSAGE": OOM}),
        json.dumps({**ENTRY, "MESSAGE": "\n".join(LOST)}),
    ]
    pretty = [json.dumps(json.loads(line), indent="\t") for line in lines]
    for form in (lines, pretty, [f"\x1e{line}" for line in lines], [f"data: {x}" for x in lines]):
        first, second = texts("\n".join(form))
        assert first.startswith(XID) and second == WHOLE


def test_the_journal_s_export() -> None:
    fields = "".join(f"{name}={value}\n" for name, value in ENTRY.items()).encode()
    lost = "\n".join(LOST).encode()
    binary = b"MESSAGE\n" + len(lost).to_bytes(8, "little") + lost + b"\n"
    data = b"MESSAGE=" + XID.encode() + b"\n" + fields + b"\n" + fields + binary + b"PRIORITY=3\n"
    for text in (data, data.replace(b"MESSAGE=", b"__CURSOR=s\nMESSAGE=", 1), data[:-40]):
        found = source(text, "journal.export")
        assert found is not None and read_past(found).lines[0].text == XID
    found = source(data, "journal.export")
    assert found is not None and read_past(found).lines[1].text == WHOLE


def test_the_journal_as_verbose_text() -> None:
    def entry(second: int, transport: str, message: str) -> str:
        cursor = "s=1a2b;i=7c;b=5f0c;m=1a;t=2b;x=3c"
        return (
            f"Sun 2025-02-23 16:24:{second} UTC [{cursor}]\n    _HOSTNAME=gpu7\n"
            f"    SYSLOG_IDENTIFIER={transport}\n    MESSAGE={message}\n    _PID=1\n"
        )

    joined = "\n            ".join(LOST)
    text = entry(10, "kernel", XID) + entry(20, "sshd", OOM) + entry(30, "kernel", joined)
    for whole in (text, f"-- Journal begins at Sun 2025-02-23 --\n{text}"):
        log = log_of(whole)
        assert kept(whole) == {XID, WHOLE}
        assert log.age_s(log.lines[0]) == 20.0
    assert log_of(entry(10, "kernel", "bond0: is up")).file_lines == 1


def test_the_json_of_dmesg() -> None:
    records = [{"pri": 3, "time": 1134.5, "msg": "\n".join(LOST)}, {"time": 1224.5, "msg": FAR}]
    log = log_of(json.dumps({"dmesg": records}, indent=3))
    assert [line.text for line in log.lines] == [WHOLE, FAR]
    assert log.age_s(log.lines[0]) == 90.0


def test_the_log_in_a_report_of_nvidia_bug_report() -> None:
    line = "_" * 44
    first, second = FORMS["dmesg"]
    journal = FORMS["journalctl -k"][0].format(WHOLE)
    dmesg = "\n".join([first.format(LOST[0]), LOST[1], LOST[2], second.format(FAR)])
    head = (
        f"{line}\n\nStart of NVIDIA bug report log file.  Please include\n\n{line}\n\n" + "*\n" * 99
    )
    scan = (
        f"Scanning kernel log files for NVIDIA kernel messages:\n\n  journalctl -b -0:\n{journal}\n"
    )
    for title in ("dmesg:", "/usr/bin/dmesg -T:"):
        report = f"{head}{line}\n\n{scan}\n{line}\n\n{title}\n\n{dmesg}\n\n{line}\n\nxset -q:\n"
        assert kept(report) == {WHOLE, FAR}
    assert kept(f"{head}{line}\n\n{scan}\n{line}\n\ndmesg:\n\n{line}\n\nxset -q:\n") == {WHOLE}


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
    with pytest.raises(UsageError, match=r"kern.log: a kernel log of 2 hosts: gpu7, gpu8") as error:
        log_of(f"{first.format(XID)}\n{second.format(BOOT)}\n".replace("48 gpu7", "48 gpu8"))
    # Also of a form with the host at the line's beginning.
    assert error.value.hint == "give the lines of each host: grep -wF gpu7 kern.log > one.log"


def test_an_xid_without_a_time_has_that_of_the_line_before() -> None:
    first, _ = FORMS["dmesg"]
    broadcast = f" kernel:[1134.500000] {XID}"  # syslogd's on a terminal
    log = log_of(f"kernel: {XID}\n{first.format(FAR)}\n{broadcast}\nno kernel wrote this\n")
    assert len({line.at_s for line in log.lines}) == 1 and len(log.lines) == 3
    assert texts(f"{XID}\n{OOM}\n") == [XID, OOM]


@pytest.mark.parametrize("break_", ["{}\n{}", "> {}\n> {}", "{}\n  {}", "{} \n{}"])
def test_a_message_that_a_mail_client_wrapped_is_judged(break_: str) -> None:
    begin = "mlx5_core 0000:1c:00.0: mlx5_pcie_event:299:(pid 268269): Detected"
    end = "insufficient power on the PCIe slot (27W)."
    first, second = FORMS["dmesg"]
    log = break_.format(first.format(begin), end) + f"\n{second.format(FAR)}\n"
    assert f"{begin} {end}" in kept(log)


def test_a_message_that_rsyslog_counted_is_there_as_often() -> None:
    first, second = FORMS["kern.log"]
    log = first.format(FAR) + "\n" + second.format(f"message repeated 9 times: [ {FAR}]") + "\n"
    assert texts(log) == [FAR] * 10


HEALTHY = "bond0: (slave eth0): link status up"


@pytest.mark.parametrize("form", FORMS)
def test_a_log_in_which_nothing_known_stands_is_one(form: str) -> None:
    first, second = FORMS[form]
    log = log_of(f"{first.format(HEALTHY)}\n{second.format(HEALTHY)}\n")
    assert (log.lines, log.file_lines) == ((), 2)


def test_it_passes_with_what_was_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kern.log"
    file.write_text("\n".join(line.format(HEALTHY) for line in FORMS["journalctl -k"]))
    assert guarded(["check", "--from", str(file)]) == 0
    printed = capfd.readouterr()
    assert "2 lines of the kernel over 1.5 min" in " ".join(printed.out.split())
    assert not printed.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h1:7:7 [0] NCCL INFO Bootstrap",
        "2025-02-23 16:24:18 INFO compiling kernel: gemm",
        "2025-02-23 16:24:18,123 compiling kernel: gemm",
        "[    12.345] (II) NVIDIA(0): Setting mode",
        "[Sun Feb 23 16:24:18 2025] [error] [client ::1] File does not exist",
        "[91169.504389] [DEBUG]Reading file: /etc/bumblebee/bumblebee.conf",
        "Feb 23 16:24:18 gpu7 slurmd[7]: launch task",
        f"# Notes\n\nThe kernel said:\n\n    {XID}\n",
        json.dumps({"findings": [XID]}),
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
