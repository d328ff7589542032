"""Rules of the kernel log: which lines fire, on what, for how long, and what ends them."""

import pytest
from cases_kernel_log import FIRES
from fine_kernel_log import FINE
from healthy import healthy
from healthy_gpu import logged
from hypothesis import given
from hypothesis import strategies as st
from looking import found, of

from busbw.check.registry import CHECKS
from busbw.core.finding import Verdict
from busbw.core.kernel_rule import DAY_S
from busbw.core.kernel_rules import concerned, kernel_rules

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
BAD = (WARN, FAIL)
NAMES = [rule.row.name for rule in kernel_rules()]


def first(name: str) -> str:
    """A line that fires a rule."""
    return FIRES[name][0][0]


@pytest.mark.parametrize("name", FIRES)
def test_lines_fire_their_rule_on_their_subject(name):
    for line, verdict, subject in FIRES[name]:
        fires(name, line, verdict, subject)


def fires(name, line, verdict, subject):
    (finding,) = found(name, logged(line))
    assert (finding.subject, finding.verdict) == (subject, Verdict(verdict))
    assert finding.evidence[0].seen == line and "1 min ago" in finding.message
    assert finding.fix and "{" not in finding.fix + finding.message
    matching = [
        rule.row.name
        for rule in kernel_rules()
        if any(sign.pattern.search(line) for sign in rule.signs)
    ]
    assert matching == [name], "one line is one rule's"
    assert concerned(line), "snapshots keep it"


def test_healthy_lines_of_the_family_do_not_fire():
    for name, lines in FINE.items():
        for line in lines:
            verdicts = [finding.verdict for finding in found(name, logged(line))]
            assert verdicts == [PASS], (name, line)


def test_every_rule_has_lines_of_both_kinds_and_every_sign_one_that_fires():
    assert sorted(NAMES) == sorted(FIRES) == sorted(FINE)
    lines = [line for cases in FIRES.values() for line, _, _ in cases]
    idle = [
        sign.pattern.pattern
        for rule in kernel_rules()
        for sign in rule.signs
        if sign.least == 1 and not any(sign.pattern.search(line) for line in lines)
    ]
    assert [line for line in idle if "Memory cgroup" not in line] == []


CORRECTED = (
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Chan#0_DIMM#0", "MC0"),
    ("{7}[Hardware Error]: event severity: corrected", ""),
    ("mce: [Hardware Error]: Corrected error, no action required.", ""),
)


@pytest.mark.parametrize(("line", "subject"), CORRECTED)
def test_many_corrected_errors_of_a_day_count(line, subject):
    (few,) = found("hardware-errors-logged", logged(*[line] * 10))
    assert few.verdict is PASS
    (many,) = found("hardware-errors-logged", logged(*[line] * 200))
    assert (many.verdict, many.subject) == (WARN, subject) and " x 200, " in many.message
    old = logged(*[line] * 200, ago_s=2 * DAY_S)
    (mixed,) = found("hardware-errors-logged", old, logged(*[line] * 3))
    assert mixed.verdict is PASS


def test_rules_are_separate_rows_and_give_the_reason_a_line_holds():
    assert {rule.row for rule in kernel_rules()} <= {check.row for check in CHECKS}
    for rule in kernel_rules():
        assert all(sign.because in rule.row.why for sign in rule.signs), rule.row.name
        assert all(sign.holds_s is not None or sign.because for sign in rule.signs)


@pytest.mark.parametrize(("bus", "verdicts"), [("0000:43:00", [PASS]), ("0000:52:00", [FAIL])])
def test_an_error_covered_by_an_xid_of_the_gpu_is_not_repeated(bus, verdicts):
    xid = f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert [
        finding.verdict
        for finding in found("gpu-fell-off-bus", logged(first("gpu-fell-off-bus"), xid))
    ] == verdicts


LASTS = [
    name for name, rule in zip(NAMES, kernel_rules(), strict=True) if rule.signs[0].holds_s is None
]
PASSES = ["netdev-tx-timeout", "cpu-lockup", "hung-task"]


@pytest.mark.parametrize("name", LASTS)
def test_a_state_does_not_fade(name):
    (finding,) = found(name, logged(first(name), ago_s=10 * DAY_S))
    assert finding.verdict in BAD and "10 d ago" in finding.message


@pytest.mark.parametrize("name", PASSES)
def test_an_event_of_yesterday_is_reported_and_passes(name):
    assert found(name, logged(first(name), ago_s=DAY_S - 60))[0].verdict in BAD
    (finding,) = found(name, logged(first(name), ago_s=7 * DAY_S))
    assert finding.verdict is PASS and "7 d ago" in finding.message and finding.evidence


def test_an_oom_kill_within_a_cgroup_is_the_job_s():
    line = (
        "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB,"
        " anon-rss:506500kB"
    )
    (finding,) = found("oom-kill", logged(line, line))
    assert (finding.verdict, finding.subject) == (PASS, "")
    assert (
        finding.message
        == "leaker: killed within the memory limit of its job or container x 2, 1 min ago"
    )


@pytest.mark.parametrize(
    ("name", "error", "end"),
    [
        (
            "gpu-driver-start",
            "NVRM: GPU 0000:43:00.0: rm_init_adapter failed, device minor number 1",
            "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
        ),
        (
            "fabric-manager-failed",
            "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
            "systemd[1]: Started NVIDIA fabric manager service.",
        ),
        (
            "nic-firmware-health",
            (
                "mlx5_core 0000:44:00.0: poll_health:801:(pid 0): device's health compromised -"
                " reached miss count"
            ),
            (
                "mlx5_core 0000:44:00.0: mlx5_health_try_recover:343:(pid 9): health recovery"
                " succeeded"
            ),
        ),
        (
            "nic-firmware-commands",
            "mlx5_core 0000:44:00.0: mlx5_load_one failed with error code -22",
            "mlx5_core 0000:44:00.0: firmware version: 28.41.1000",
        ),
        (
            "nic-module-events",
            (
                "mlx5_core 0000:44:00.0: Port module event[error]: module 0, Cable error, High"
                " Temperature"
            ),
            "mlx5_core 0000:44:00.0: Port module event: module 0, Cable plugged",
        ),
        (
            "pcie-aer-logged",
            "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:44:00.0",
            "mlx5_core 0000:44:00.0: AER: device recovery successful",
        ),
        (
            "filesystem-errors",
            "EXT4-fs (sda1): Remounting filesystem read-only",
            "EXT4-fs (sda1): re-mounted 0f3cd65a r/w.",
        ),
        (
            "nfs-not-responding",
            "nfs: server fs1 not responding, still trying",
            "nfs: server fs1 OK",
        ),
        (
            "cluster-file-system",
            "Lustre: fs1-OST0003-osc-ffff8: Connection to fs1-OST0003 (at 10.0.0.7@tcp) was lost",
            "Lustre: fs1-OST0003-osc-ffff8: Connection restored to 10.0.0.7@tcp",
        ),
    ],
)
def test_a_line_ends_what_came_before_it_on_the_same_subject(name, error, end):
    (ended,) = found(name, logged(error, ago_s=7200), logged(end, ago_s=3600))
    assert ended.verdict is PASS and ended.message.endswith(", ended")
    assert found(name, logged(end, ago_s=7200), logged(error, ago_s=3600))[0].verdict in BAD, (
        "an end before the error"
    )
    assert (
        found(name, logged(error, ago_s=7200), logged(end, ago_s=3600), logged(error, ago_s=60))[
            0
        ].verdict
        in BAD
    ), "it came back"
    other = end.replace("44:00", "1b:00").replace("sda1", "sda2").replace("fs1", "fs2")
    if other != end:
        assert (
            found(name, logged(error, ago_s=7200), logged(other, ago_s=3600))[0].verdict in BAD
        ), "the end of another part"


def test_a_gpu_off_the_bus_is_reported_once():
    line = "NVRM: GPU 0000:43:00.0: GPU has fallen off the bus."
    xid = (
        "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the"
        " bus."
    )
    assert found("gpu-fell-off-bus", logged(line, xid))[0].verdict is PASS
    (finding,) = found("gpu-fell-off-bus", logged(line, xid.replace("43:00", "1b:00")))
    assert (finding.subject, finding.verdict) == ("GPU 1", FAIL)


LEFT_OVER = (
    "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: bea0000000000108",
    "mce: [Hardware Error]: Uncorrected, software restartable error.",
    "{1}[Hardware Error]: event severity: fatal",
)


@pytest.mark.parametrize(("at_s", "verdict"), [(0.7, WARN), (60.0, WARN), (60.5, FAIL)])
@pytest.mark.parametrize("line", LEFT_OVER)
def test_an_event_of_the_previous_boot_warns(line, at_s, verdict):
    (finding,) = found(
        "hardware-errors-logged",
        lambda tree: tree.update("kmsg", lines=[{"at_s": at_s, "text": line}]),
    )
    assert finding.verdict is verdict and ("previous boot" in finding.message) is (verdict is WARN)


def test_an_event_the_previous_boot_cannot_have_left_fails():
    line = {"at_s": 1.0, "text": "EDAC MC0: 1 UE memory read error on CPU_SrcID#0"}
    (finding,) = found("hardware-errors-logged", lambda tree: tree.update("kmsg", lines=[line]))
    assert (finding.verdict, "previous boot" in finding.message) == (FAIL, False)


def test_a_deferred_error_of_the_previous_boot_is_marked():
    line = {"at_s": 1.0, "text": "mce: [Hardware Error]: Deferred error, no action required."}
    (finding,) = found("hardware-errors-logged", lambda tree: tree.update("kmsg", lines=[line]))
    assert finding.verdict is WARN and finding.message.endswith("left by the previous boot")


def test_parts_are_judged_separately_the_worst_first():
    lines = [
        "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        "I/O error, dev sdb, sector 1",
        "I/O error, dev sdb, sector 2",
        "nvme nvme4: Disabling device after reset failure: -19",
        "nvme nvme4: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
    ]
    findings = found("disk-errors", logged(*lines))
    assert [(finding.subject, finding.verdict) for finding in findings] == [
        ("nvme4", FAIL),
        ("sdb", FAIL),
        ("nvme2", WARN),
    ]
    assert of(findings, "sdb").message == "a read or write failed x 2, 1 min ago"
    assert of(findings, "nvme4").message.startswith(
        "the drive does not answer and was switched off, 1 min ago; the drive did not answer"
    )
    assert "/dev/nvme4" in of(findings, "nvme4").fix


@pytest.mark.parametrize(
    ("lines", "ending"), [(3, "h ago"), (4, "; and 1 more"), (5, "; and 2 more")]
)
def test_three_signs_of_a_part_are_named(lines, ending):
    texts = [line for line, _, _ in FIRES["nic-firmware-health"]][:lines]
    (finding,) = found("nic-firmware-health", logged(*texts, ago_s=7200))
    assert finding.message.endswith(ending) and finding.message.count(" ago") == 3


@pytest.mark.parametrize(("tasks", "ending"), [(3, "d ago"), (4, "; and 1 more")])
def test_three_past_events_are_named(tasks, ending):
    texts = [
        f"INFO: task python{number}:7 blocked for more than 120 seconds." for number in range(tasks)
    ]
    (finding,) = found("hung-task", logged(*texts, ago_s=3 * DAY_S))
    assert (
        finding.verdict is PASS and finding.message.endswith(ending) and len(finding.evidence) == 3
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hung-task", "An error counts for 24 h (the kernel stops"),
        ("nic-slot-power", "An error counts until the next boot (the slot"),
        (
            "nfs-not-responding",
            (
                "An error counts until the next boot or a line that ends it (the kernel logs OK"
                " when the server responds again), others for 24 h ("
            ),
        ),
    ],
)
def test_the_page_of_a_rule_states_how_long_a_line_holds(name, words):
    assert words in next(rule.row.why for rule in kernel_rules() if rule.row.name == name)


def test_adapter_with_two_ports_is_named_by_its_ports():
    tree = healthy()
    tree.link("/sys/class/infiniband/mlx5_9/device", "../../../0000:44:00.0").file(
        "/sys/class/infiniband/mlx5_9/ports/1/state", "4: ACTIVE"
    )
    (finding,) = found("nic-slot-power", logged(FIRES["nic-slot-power"][0][0]), tree=tree)
    assert finding.subject == "mlx5_1 mlx5_9"


def test_names_in_a_remedy_are_quoted():
    (finding,) = found(
        "filesystem-errors", logged("EXT4-fs (sda1; rm -rf x): Remounting filesystem read-only")
    )
    assert "xfs_repair on 'sda1; rm -rf x'" in finding.fix


LINES = [line for lines in FIRES.values() for line, _, _ in lines]
TEXT = st.text(max_size=30)


@given(TEXT, st.sampled_from(LINES), TEXT)
def test_a_rule_s_lines_are_kept_and_judged_whatever_is_around_them(before, line, after):
    cut = line[: len(line) // 2]
    for text in (f"{before}{line}", f"{before}{cut}{after}", f"{line}{after}"):
        fires = {
            rule.row.name
            for rule in kernel_rules()
            if any(sign.pattern.search(text) for sign in rule.signs)
        }
        assert not fires or concerned(text)
        for name in fires:
            assert {finding.verdict for finding in found(name, logged(text))} <= {PASS, WARN, FAIL}
