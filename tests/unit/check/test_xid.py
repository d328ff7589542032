"""Xids and SXids in the kernel log: which line is judged how, on which device, for how long, and
what ends it.
"""

import pytest
from healthy_gpu import NOW_S, changed, logged
from hypothesis import given
from hypothesis import strategies as st
from looking import found, of

from busbw.check.gpu.logged import nvlink_severity
from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.core.finding import Verdict
from busbw.host.kernel_log import logged_xids
from busbw.host.kernel_log_file import source

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
DAY_S = 86400.0
GPU_1 = "NVRM: Xid (PCI:0000:43:00): "
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): "
WAITING_ROW = "Row Remapper: New row (0x4001b1) marked for remapping, reset gpu to activate."
HEX = "0x00000001 0x00000008 0x00000000 0x00000000"


def at(ago_s: float, *texts: str):
    """A change: these lines, so many seconds ago."""
    return logged(*texts, ago_s=ago_s)


@pytest.mark.parametrize(
    ("text", "ago_s", "verdict"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 60, FAIL),
        ("79, GPU has fallen off the bus.", 30 * DAY_S, FAIL),  # it does not fade
        ("46, pid=7, name=python3, Ch 00000001", 9999, FAIL),
        ("48, pid=7, name=python3, DBE (double bit error)", 9999, FAIL),
        ("95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", 9999, FAIL),
        ("64, Failed to persist row remap table", 9999, FAIL),
        (
            (
                "119, pid=9, name=nvidia-smi, Timeout after 6s of waiting for RPC response from"
                " GPU1 GSP!"
            ),
            9999,
            FAIL,
        ),
        ("155, NVLINK software defined error", 9999, FAIL),
        ("158, pid=9, name=x, GPU fatal timeout", 9999, FAIL),
        (
            (
                "74, pid=9, name=x, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0,"
                " 0x0, 0x0, 0x0)"
            ),
            9999,
            FAIL,
        ),
        (
            (
                "74, pid=9, name=x, NVLink: fatal error detected on link 6(0x800001, 0x0, 0x0, 0x0,"
                " 0x900000, 0x0, 0x0)"
            ),
            60,
            PASS,
        ),
        (
            (
                "74, pid=9, name=x, NVLink: fatal error detected on link 6(0x2, 0x0, 0x0, 0x30000,"
                " 0x0, 0x0, 0x0)"
            ),
            60,
            WARN,
        ),
        ("13, pid=9, name=python3, Graphics Exception: ESR 0x546fb0=0x11f000e", 60, PASS),
        ("31, pid=9, name=python, Ch 8, MMU Fault", 60, PASS),
        ("43, pid=2924364, name=pt_main_thread, Ch 00000008", 60, PASS),
        ("45, pid=9, name=python3, Ch 00000001", 60, PASS),
        ("80, pid=9, name=python3, pushbuffer CRC mismatch", 60, PASS),
        (f"63, {WAITING_ROW}", 60, PASS),  # NVML says that no row waits for a reset any more
        ("92, High single-bit ECC error rate", 60, PASS),
        ("94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", 60, WARN),
        ("94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", DAY_S + 1, PASS),
        (f"145, pid=9, name=ray::Fatal, RLW_RXPIPE Nonfatal XC0 i0 Link 13 ({HEX})", 60, WARN),
        (f"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 ({HEX})", DAY_S + 1, PASS),
        (f"146, TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 00 ({HEX})", 9999, FAIL),
        (f"149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 ({HEX})", 9999, FAIL),
        # a process may be called "a, b"
        (f"150, pid=9, name=a, b, MSE_WATCHDOG Fatal XC0 i0 Link 00 ({HEX})", 9999, FAIL),
        # the subunits of XID 144-150 Decode
        ("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001)", 60, WARN),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a4c2 0x00000004)", 9999, FAIL),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000004)", 60, WARN),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x02600011 0x00000000)", 60, WARN),
        ("9999, something new", 9999, WARN),
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            9999,
            FAIL,
        ),
        ("154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", 9999, FAIL),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 60, PASS),
        ("154, something without an action", 60, FAIL),
        ("168, Reduced memory capacity", 9 * DAY_S, WARN),  # watched until the next boot or a reset
    ],
)
def test_xid_by_number_text_and_age(text, ago_s, verdict):
    (finding,) = found("gpu-xid", at(ago_s, GPU_1 + text))
    assert (finding.subject, finding.verdict) == ("GPU 1", verdict)
    assert f"Xid {text.partition(',')[0]} (" in finding.message and bool(finding.fix) is (
        verdict is not PASS
    )


def test_an_xid_whose_cause_the_log_has_lost():
    cleanup = GPU_1 + "45, pid=9, name=python3, Ch 00000001 caused by previous Xid 149"
    (finding,) = found("gpu-xid", at(60, cleanup))
    assert finding.verdict is WARN and finding.fix.startswith("journalctl -k -b | grep")
    assert "Xid 45, 1 min ago, caused by Xid 149 (NVLink NETIR error)" in finding.message
    (finding,) = found(
        "gpu-xid", at(60, GPU_1 + f"149, NETIR Fatal XC0 i0 Link 01 ({HEX})", cleanup)
    )
    assert finding.verdict is FAIL and "caused by" not in finding.message


@pytest.mark.parametrize(
    ("later", "verdict"), [("", WARN), ("0000:43:00.0: reset done", PASS), (WAITING_ROW, WARN)]
)
def test_a_row_waits_for_a_reset_where_only_the_log_is_known(later, verdict):
    lines = f"[ 10.000000] {GPU_1}63, {WAITING_ROW}\n[ 20.000000] {later}\n"
    (finding,) = find("gpu-xid").run(Machine(source(lines.encode(), "kern.log")))
    assert finding.verdict is verdict
    assert verdict is PASS or "--gpu-reset -i 0000:43:00.0" in finding.fix


def test_registers_of_xid_74_count_on_hopper_alone():
    line = GPU_1 + "74, NVLink: fatal error detected on link 6(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    assert found("gpu-xid", at(60, line))[0].verdict is PASS
    assert found("gpu-xid", changed(1, sm=80), at(60, line))[0].verdict is FAIL


@pytest.mark.parametrize("register", range(7))
def test_bits_of_the_registers_of_xid_74(register):
    harmless = {0: {0, 23, 30}, 4: {20, 23, 26, 29}}.get(register, set())
    secondary = {0: {1, 20}, 3: {16, 17}}.get(register, set())
    for bit in range(32):
        registers = ", ".join(hex((register_at == register) << bit) for register_at in range(7))
        expected = "harmless" if bit in harmless else "secondary" if bit in secondary else ""
        assert (
            nvlink_severity(f", NVLink: fatal error detected on link 6({registers})") == expected
        ), (register, bit)


@pytest.mark.parametrize(
    "text",
    [
        "NVLink: failed to train link 1",
        "on link 6(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        "on link 6(0x1, 0x0)",
    ],
)
def test_lines_of_xid_74_without_bits_give_no_detail(text):
    assert nvlink_severity(text) == ""


XID_46 = GPU_1 + "46, pid=7, name=python3, Ch 00000001"
NONE = GPU_1 + "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
RESET = "nvidia 0000:43:00.0: reset done"
WRITTEN = "0000:43:00.0: reset done"  # by the command of the fix
OTHER_RESET = "nvidia 0000:1b:00.0: reset done"
LOADED = "nvidia-nvlink: Nvlink Core is being initialized, major device number 234"


@pytest.mark.parametrize(
    ("error", "later", "verdict"),
    [
        (XID_46, RESET, PASS),
        (XID_46, WRITTEN, PASS),
        (XID_46, "nvidia 0000:43:00.0: resetting", FAIL),
        (XID_46, NONE, PASS),
        (XID_46, OTHER_RESET, FAIL),
        (XID_46, NONE.replace("43:00", "1b:00"), FAIL),
        (XID_46, LOADED, WARN),
        (GPU_1 + "79, GPU has fallen off the bus.", RESET, FAIL),  # wants a restart of the host
        (GPU_1 + "79, GPU has fallen off the bus.", LOADED, FAIL),
        (GPU_1 + "79, GPU has fallen off the bus.", NONE, PASS),
        (
            GPU_1 + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            RESET,
            PASS,
        ),
    ],
)
def test_a_reset_of_the_gpu_ends_it(error, later, verdict):
    bus = "0000:1b:00" if "1b:00" in later else "0000:43:00"
    findings = found("gpu-xid", at(7200, error), at(3600, later))
    assert of(findings, "GPU 1").verdict is verdict
    assert len(findings) == (2 if bus == "0000:1b:00" and "Xid" in later else 1)
    before = found("gpu-xid", at(7200, later), at(3600, error))
    assert of(before, "GPU 1").verdict is FAIL, "a reset before the error ends nothing"


def test_a_reset_ends_a_watched_error():
    (finding,) = found("gpu-xid", at(7200, GPU_1 + "168, Reduced memory capacity"), at(3600, RESET))
    assert finding.verdict is PASS and finding.message.endswith("the GPU was reset since")


def test_one_finding_for_each_gpu_the_worst_first():
    first, second = "NVRM: Xid (PCI:0000:1b:00): ", GPU_1
    lines = [
        f"{first}31, MMU Fault",
        *[f"{second}31, MMU Fault"] * 3,
        f"{second}94, Contained",
        f"{second}95, Uncontained",
    ]
    findings = found("gpu-xid", at(7200, *lines))
    assert [(finding.subject, finding.verdict) for finding in findings] == [
        ("GPU 1", FAIL),
        ("GPU 0", PASS),
    ]
    assert (
        findings[0].message
        == "Xid 95 (uncontained memory error), 2 h ago; Xid 94 (contained memory error), 2 h ago; "
        "Xid 31 (GPU memory page fault) x 3, 2 h ago: an error of the application"
    )
    assert findings[0].fix.startswith(
        f"drain the host first; nvidia-smi --gpu-reset -i 0000:43:00.0 && echo '{WRITTEN}' >"
        " /dev/kmsg"
    )
    assert [evidence.seen for evidence in findings[0].evidence] == [lines[-1]]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008)", "restart the appl"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)", "nvidia-smi nvli"),
        ("146, TLW_CTRL Nonfatal XC0 i0 Link 03 (0x00000009, 0x00000002)", "nvidia-smi nvlink -e"),
        ("150, of an unknown form", "nvidia-smi nvlink -e"),
    ],
)
def test_a_link_that_works_is_not_reset(text, fix):
    (finding,) = found("gpu-xid", at(60, GPU_1 + text))
    assert finding.verdict is WARN and finding.fix.startswith(fix)
    assert "reset" not in finding.fix and "drain" not in finding.fix


def test_later_nonfatal_errors_do_not_hide_a_fatal_one():
    fatal, other = (
        f"{GPU_1}149, NETIR_LINK_EVT {word} XC0 i0 Link 08 ({HEX})"
        for word in ("Fatal", "Nonfatal")
    )
    (finding,) = found("gpu-xid", at(7200, fatal), at(60, other, other))
    assert finding.verdict is FAIL and finding.evidence[0].seen == fatal


@pytest.mark.parametrize(
    ("action", "fix"),
    [
        ("0x1 (GPU Reset Required)", "drain the host first; nvidia-smi --gpu-reset -i 0000:43:00"),
        ("0x2 (Node Reboot Required)", "drain the host first; reboot it"),
        ("0x3 (Drain P2P)", "drain the host, and end all programs that use NVLink;"),
        ("0x4 (Drain and Reset)", "drain the host first; nvidia-smi --gpu-reset -i 0000:43:00.0"),
        ("0x99 (Something New)", "drain the host first; do what the line says"),
    ],
)
def test_xid_154_names_the_action_and_its_command(action, fix):
    line = f"{GPU_1}154, GPU recovery action changed from 0x0 (None) to {action}"
    (finding,) = found("gpu-xid", at(3 * DAY_S, line, line))
    name = action.partition("(")[2][:-1]
    assert finding.message == f"Xid 154 (GPU recovery action changed) x 2, 3 d ago: {name}"
    assert finding.fix.startswith(fix)


def test_xid_of_a_gpu_that_nvml_does_not_list_has_its_bus():
    (finding,) = found(
        "gpu-xid",
        lambda tree: tree.failing("nvml_health", "no"),
        at(60, "NVRM: Xid (PCI:0000:e4:00): 79, GPU is gone"),
    )
    assert (finding.subject, finding.verdict) == ("0000:e4:00", FAIL)


def test_xids_are_judged_without_nvml():
    (finding,) = found("gpu-xid", lambda tree: tree.failing("nvml_health", "no driver"))
    assert finding.verdict is PASS and "no Xid" in finding.message


@pytest.mark.parametrize(
    ("reason", "optional", "fix"),
    [
        (
            "/dev/kmsg: operation not permitted (it needs root, or sysctl kernel.dmesg_restrict=0)",
            True,
            "sudo busbw check",
        ),
        ("/dev/kmsg: no such file or directory", True, "busbw check, on the host as root"),
        (
            "/dev/kmsg: it has no records, as in a container that hides it",
            True,
            "busbw check, on the host as root",
        ),
        ("the recording has no 'kmsg'", True, "busbw check, on the host as root"),
        ("/dev/kmsg: input/output error", False, "busbw check, on the host as root"),
    ],
)
@pytest.mark.parametrize("name", ["gpu-xid", "gpu-sxid", "disk-errors"])
def test_an_unreadable_log_is_reported(name, reason, optional, fix):
    (finding,) = found(name, lambda tree: tree.failing("kmsg", reason))
    assert (finding.verdict, finding.optional, finding.fix) == (UNKNOWN, optional, fix)
    assert reason in finding.message


def test_a_log_that_lost_its_beginning_states_its_first_time():
    (finding,) = found("gpu-xid", lambda tree: tree.update("kmsg", begins_s=NOW_S - 7200))
    assert finding.verdict is PASS and "reaches back 2 h" in finding.message


@pytest.mark.parametrize(
    ("text", "ago_s", "verdict", "words"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", 30 * DAY_S, FAIL, "nvidia-smi --gpu-reset"),
        ("12020, Fatal, Link 46 egress sequence ID error", 60, FAIL, "reboot it"),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", 60, WARN, "journalctl"),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", DAY_S + 1, PASS, ""),
        ("22013, Non-fatal, Link 57 Minion Link DLREQ interrupt", 60, PASS, ""),
        ("11012, Correctable, Link 04 ingress header ECC", 60, PASS, ""),
        ("12020, Correctable, Link 04 egress sequence ID error", 60, PASS, ""),
        ("28006, Non-fatal, Link 46 something new", 60, WARN, "journalctl"),
        (
            "10006, NVSWITCH Temperature 110C | OVERT Threshold 105C",
            9999,
            FAIL,
            "nvidia-smi --gpu-reset",
        ),
        ("10004, NVSWITCH Temperature 100C | TSENSE WARN Threshold 95C", 60, WARN, "air flow"),
    ],
)
def test_sxid_by_word_number_and_age(text, ago_s, verdict, words):
    (finding,) = found("gpu-sxid", at(ago_s, SWITCH + text))
    assert (finding.subject, finding.verdict) == ("NVSwitch 0000:05:00", verdict)
    assert words in finding.fix and bool(finding.fix) is (verdict is not PASS)


def test_an_sxid_that_reports_the_end_ends_the_condition():
    begun, ended = (
        SWITCH + "10004, Thermal Slowdown Engaged",
        SWITCH + "10005, Thermal Slowdown Disengaged",
    )
    assert found("gpu-sxid", at(200, begun), at(100, ended))[0].verdict is PASS
    assert found("gpu-sxid", at(200, ended), at(100, begun))[0].verdict is WARN


def test_a_reset_of_the_switch_ends_a_fatal_sxid_but_not_one_that_needs_a_reboot():
    reset = at(10, "nvidia-nvswitch 0000:05:00.0: reset done")
    assert (
        found("gpu-sxid", at(60, SWITCH + "20034, Fatal, Link 30 LTSSM Fault Up"), reset)[0].verdict
        is PASS
    )
    assert (
        found("gpu-sxid", at(60, SWITCH + "12020, Fatal, Link 46 egress sequence ID error"), reset)[
            0
        ].verdict
        is FAIL
    )


def test_lines_that_continue_an_sxid_do_not_hide_that_it_is_fatal():
    more = (
        "Severity 1 Engine instance 04 Sub-engine instance 00",
        "Data {0x0000000e}",
        "SOE HALT data[0] = unavailable",
    )
    lines = [f"{SWITCH}22013, Fatal, Link 4 error", *(f"{SWITCH}22013, {text}" for text in more)]
    (finding,) = found("gpu-sxid", at(60, *lines))
    assert finding.verdict is FAIL and " x " not in finding.message


def test_an_sxid_of_which_only_details_are_left_is_judged_by_its_number():
    data = "12028, Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064, 0x00000000}"
    (finding,) = found("gpu-sxid", at(60, SWITCH + data, SWITCH + data))
    assert finding.verdict is WARN and " x " not in finding.message
    assert "SXid 12028 (severity not in the log, egress non-posted PRIV error)" in finding.message


PREFIXES = [
    "",
    "[12345.678901] ",
    "[Fri Aug 30 11:43:09 2024] ",
    "Feb 14 05:03:41 gpu-1 kernel: ",
    "gpu-1 kernel: [  885.242168] ",
    "2026-09-14T20:30:27-0400 gpu-1 kernel: ",
    "4,2,9,-;",
    "<4>",
    "gpu-1: kern: warning: [2026-04-22T21:30:51.87Z]: ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
            ("0000:4b:00", 79, False, ""),
        ),
        ("NVRM: Xid (0000:03:00): 43, Channel 00000001", ("0000:03:00", 43, False, "")),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained",
            ("0000:01:00", 94, False, "GPU-I:05"),
        ),
        (
            "NVRM: Xid (PCI:0000:3B:00 GPU-I:01 GPU-CI:02): 13, pid=9",
            ("0000:3b:00", 13, False, "GPU-I:01 GPU-CI:02"),
        ),
        ("NVRM: Xid (PCI:10008:01:00): 45, pid=9", ("10008:01:00", 45, False, "")),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46",
            ("0000:c1:00", 28006, True, ""),
        ),
    ],
)
def test_forms_of_lines(prefix, line, expected):
    (xid,) = logged_xids(prefix + line)
    assert (xid.bus, xid.number, xid.switch, xid.instance) == expected


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU at PCI:0000:03:00: GPU-b850f46d",
        "NVRM: Xid (invalid): some error",
        "Xid 79",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64",
    ],
)
def test_other_lines_are_not_an_xid(line):
    assert logged_xids(line) == []


name = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs", "Cc"]), max_size=15)


@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(1, 99999), name)
def test_any_xid_is_read_back(domain, bus, slot, number, process):
    address = f"{domain:04x}:{bus:02x}:{slot:02x}"
    (xid,) = logged_xids(
        f"NVRM: Xid (PCI:{address}): {number}, pid=1, name={process}, Ch 00000001\n"
    )
    assert (xid.bus, xid.number, xid.switch) == (address, number, False)


@given(st.text(max_size=80))
def test_any_text_after_the_number_is_judged_without_an_error(text):
    for finding in found(
        "gpu-xid", at(60, *(f"{GPU_1}{number}, {text}" for number in (74, 149, 154)))
    ):
        assert finding.verdict in (PASS, WARN, FAIL)
