"""Errors of GPUs and NVSwitches that the driver logged, and the recovery that it asks for."""

import re
from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped
from busbw.check.gpu.logged import (
    CATALOG,
    HARMLESS,
    HOPPER,
    NEVER_S,
    NO_ACTION,
    NVLINK_XID,
    SECONDARY,
    JudgedErrors,
    LoggedErrors,
    Resets,
    events,
    of_device,
    recovery,
    recovery_number,
    resets,
)
from busbw.check.gpu.per_gpu import nvml_evidence, per_gpu
from busbw.check.kernel_log.judge import reaches, unread_log, worst_first
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Finding
from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.core.kernel_rule import DAY_S
from busbw.core.sizes import counted
from busbw.core.sxids import SwitchEffect, sxid
from busbw.core.xids import Effect, xid
from busbw.host.gpu import gpus_on_pci, short_bus, switches_on_pci
from busbw.host.gpu_health import GpuHealth
from busbw.host.kernel_log_past import PastLog, read_past
from busbw.host.nvml_health import read_health

FAILING_EFFECTS = (Effect.REBOOT, Effect.RESET, Effect.REPAIR)

XID = CheckRow(
    id="BW005",
    name="gpu-xid",
    layer=Layer.GPU,
    title="Xid errors in the kernel log",
    right=(
        "no Xid of this boot that asks for a reset, a restart of the host or a repair, unless the"
        " GPU was reset since"
    ),
    why=(
        "An Xid is the driver's report of an error. Some are bugs in a program (13, 31, 43 ...) and"
        " pass. Some ask for a restart of the application; those warn for a day, as the GPU may"
        " have caused them. Others mean that memory, a link or the GPU itself is broken, and jobs"
        " on it fail until it is reset: they fail until a reset of that GPU is in the log, or until"
        " the next boot, however old they are."
    ),
    fix=(
        "depends on the Xid, and is in the finding; the table of Xids is in the reference of host"
        " counters"
    ),
    stays=(
        "a reset or reboot helps if the fault was transient; if the Xid comes back, replace the GPU"
    ),
    reads=("/dev/kmsg", "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=(
        CATALOG,
        "NVSentinel, syslog health monitor",
        "Azure node health checks, azure_gpu_xid",
    ),
)
_CAUSE = re.compile(r"caused by previous Xid (\d+)")  # at the end of an Xid 45
REMAPPING_XID, ASKS_FOR_RESET = 63, "reset gpu to activate"  # open-gpu-kernel-modules, ras
FATAL_EFFECTS = (SwitchEffect.ALWAYS, SwitchEffect.FATAL)
RESET_GPU = "nvidia-smi -i {gpu} --gpu-reset"
ASK_DRIVER = "drain the host; nvidia-smi -q -i {gpu} | grep -i 'recovery action'"


@check(XID)
def check_xid(machine: Machine) -> Iterator[Finding]:
    """One finding for each GPU that logged an Xid, the worst first."""
    log = read_past(machine)
    logged = events(log, switch=False)
    if (
        not logged
        and not machine.is_log
        and not gpus_on_pci(machine)
        and not read_health(machine).gpus
    ):
        yield skipped("no NVIDIA GPU")
    elif log.reason:
        yield unread_log(log)
    elif not logged:
        yield passed("", f"no Xid in the kernel log, which reaches back {reaches(log)}")
    gpus = {short_bus(gpu.bus_id): gpu for gpu in read_health(machine).gpus if gpu.bus_id}
    labels = {bus: gpu.label for bus, gpu in gpus.items()}
    log_resets = resets(log)
    by_gpu: dict[str, list[JudgedErrors]] = {}
    numbers = {event.number for event in logged}
    for event in logged:
        cause = _CAUSE.search(event.line.text)
        judged = (
            _judge_unlogged(event, int(cause[1]), log_resets)
            if cause and int(cause[1]) not in numbers
            else _judge_xid(event, log_resets, gpus.get(event.bus))
        )
        by_gpu.setdefault(event.bus, []).append(judged)
    yield from worst_first(
        [of_device(labels.get(bus, bus), judged) for bus, judged in by_gpu.items()]
    )


def _judge_xid(event: LoggedErrors, log_resets: Resets, gpu: GpuHealth | None) -> JudgedErrors:
    row = xid(event.number)
    text = f"Xid {event.number} ({row.meaning}){event.counted}"
    effect = _effect_of_line(event, row.effect, gpu)
    verdict, remark = _xid_verdict(event, effect, log_resets)
    fix = row.fix(f"{event.bus}.0", effect)
    action = recovery(event.line.text) if row.effect is Effect.RECOVERY else ""
    if action:
        remark = f": {action}{remark}"
        number = recovery_number(event.line.text) or 0
        _, steps = ACTIONS.get(number, ("", fix))
        asked = EFFECTS_OF_ACTIONS.get(number)
        fix = row.fix(f"{event.bus}.0", asked) if asked else filled(steps, gpu=f"{event.bus}.0")
    return JudgedErrors(verdict, text + remark, fix, event)


def _judge_unlogged(event: LoggedErrors, cause: int, log_resets: Resets) -> JudgedErrors:
    """Of an Xid that names its cause, whose own line the log has lost."""
    verdict, remark = _xid_verdict(event, Effect.WATCH, log_resets)
    text = f"Xid {event.number}{event.counted}, caused by Xid {cause} ({xid(cause).meaning})"
    fix = f"journalctl -k -b | grep 'Xid.*: {cause},' has the cause, which this log lacks"
    return JudgedErrors(verdict, text + remark, fix, event)


def _effect_of_line(event: LoggedErrors, effect: Effect, gpu: GpuHealth | None) -> Effect:
    """The effect that the line names, else that of the table.

    Whether a row still waits for a reset NVML says better (BW009), as the driver logs no reset.
    """
    if effect is Effect.LINK:
        return Effect(event.word)
    if event.number == REMAPPING_XID and gpu is None and ASKS_FOR_RESET in event.line.text:
        return Effect.WATCH
    if event.number == NVLINK_XID and gpu is not None and gpu.sm == HOPPER:
        return {HARMLESS: Effect.NOTE, SECONDARY: Effect.WATCH}.get(event.word, effect)
    return effect


def _xid_verdict(event: LoggedErrors, effect: Effect, log_resets: Resets) -> tuple[Verdict, str]:
    """The verdict on an Xid, and a remark that explains it."""
    if effect is Effect.RECOVERY:
        return _verdict_of_request(event, log_resets)
    if effect in FAILING_EFFECTS:
        return _verdict_until_reset(event, effect, log_resets)
    if effect is Effect.APPLICATION:
        return Verdict.PASS, ": an error of the application"
    if effect is Effect.NOTE:
        return Verdict.PASS, ": needs no action"
    if effect is Effect.WATCH:
        reset = log_resets.after(event.bus, event.line.at_s)
        return (Verdict.PASS, "; the GPU was reset since") if reset else (Verdict.WARN, "")
    return (Verdict.WARN if event.age_s <= DAY_S else Verdict.PASS), ""


def _verdict_of_request(event: LoggedErrors, log_resets: Resets) -> tuple[Verdict, str]:
    """The verdict on Xid 154, by which the driver asks for an action."""
    if recovery(event.line.text) == NO_ACTION:
        return Verdict.PASS, ""
    if log_resets.after(event.bus, event.line.at_s):
        return Verdict.PASS, "; the GPU was reset since"
    return Verdict.FAIL, ""


def _verdict_until_reset(
    event: LoggedErrors, effect: Effect, log_resets: Resets
) -> tuple[Verdict, str]:
    """The verdict on an Xid that holds until a reset.

    A GPU that came back after it was off the bus was reset, but only the driver can say that it is
    in order.
    """
    at_s = event.line.at_s
    cleared = log_resets.cleared_after(event.bus, at_s)
    if effect is Effect.RESET:
        cleared = log_resets.after(event.bus, at_s)
    if cleared:
        return Verdict.PASS, "; the GPU was reset since"
    if effect is Effect.RESET and log_resets.reloaded_after(at_s):
        return (
            Verdict.WARN,
            "; the driver was loaded again since, which does not reset all of the GPU",
        )
    return Verdict.FAIL, ""


SXID = CheckRow(
    id="BW006",
    name="gpu-sxid",
    layer=Layer.GPU,
    title="SXid errors of NVSwitches in the kernel log",
    right=(
        "no fatal SXid of this boot, unless the NVSwitch was reset since, and no other of the last"
        " day that was not corrected"
    ),
    why=(
        "An SXid is the driver's report of an NVSwitch error. A fatal one kills jobs on the "
        "connected GPUs until GPUs and NVSwitches are reset, or for some until a reboot; it fails "
        "until then. One that is not fatal may come from a failing link, and warns for a day. A "
        "corrected one needs nothing."
    ),
    fix="depends on the SXid, and is in the finding: a reset of GPUs and NVSwitches, or a reboot",
    stays=(
        "a reset or reboot helps if the fault was transient; if the SXid comes back, replace the"
        " board"
    ),
    reads=("/dev/kmsg", "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=(
        "Fabric Manager user guide, SXid errors",
        "open-gpu-kernel-modules, src/common/nvswitch",
        CATALOG,
    ),
)


@check(SXID)
def check_sxid(machine: Machine) -> Iterator[Finding]:
    """One finding for each NVSwitch that logged an SXid, the worst first."""
    switches, log = switches_on_pci(machine), read_past(machine)
    logged = events(log, switch=True)
    if not switches and not logged and not machine.is_log:
        yield skipped("no NVSwitch on PCI of this machine")
    elif log.reason:
        yield unread_log(log)
    elif not logged:
        of = f" of {counted(len(switches), 'NVSwitch', 'es')}" if switches else ""
        yield passed("", f"no SXid{of} in the kernel log, which reaches back {reaches(log)}")
    yield from worst_first(_by_switch(logged, log))


def _by_switch(logged: list[LoggedErrors], log: PastLog) -> list[Finding]:
    log_resets = resets(log)
    ended = {(event.bus, event.number): event.line.at_s for event in logged}
    by_switch: dict[str, list[JudgedErrors]] = {}
    for event in logged:
        end = ended.get((event.bus, sxid(event.number).ended_by), NEVER_S)
        by_switch.setdefault(event.bus, []).append(
            _judge_sxid(event, log_resets, over=end > event.line.at_s)
        )
    return [of_device(f"NVSwitch {bus}", judged) for bus, judged in by_switch.items()]


def _judge_sxid(event: LoggedErrors, log_resets: Resets, *, over: bool) -> JudgedErrors:
    row = sxid(event.number)
    effect = row.judged(event.word)
    kinds = {"": "", "Correctable": "corrected, ", "Non-fatal": "not fatal, ", "Fatal": "fatal, "}
    kind = kinds.get(event.word, f"{event.word}, ")
    text = f"SXid {event.number} ({kind}{row.meaning}){event.counted}"
    verdict, remark = _sxid_verdict(event, effect, log_resets, over=over)
    return JudgedErrors(verdict, text + remark, row.fix(effect, f"{event.bus}.0"), event)


def _sxid_verdict(
    event: LoggedErrors, effect: SwitchEffect, log_resets: Resets, *, over: bool
) -> tuple[Verdict, str]:
    if effect is SwitchEffect.NOTE:
        return Verdict.PASS, ""
    if over:
        return Verdict.PASS, "; it ended"
    if effect is SwitchEffect.FATAL and log_resets.after(event.bus, event.line.at_s):
        return Verdict.PASS, "; the NVSwitch was reset since"
    if effect in FATAL_EFFECTS:
        return Verdict.FAIL, ""
    return (Verdict.WARN if event.age_s <= DAY_S else Verdict.PASS), ""


# By nvmlDeviceGpuRecoveryAction_t: what the driver asks for, and the steps.
ACTIONS = {
    1: ("a reset", f"drain the host; {RESET_GPU}"),
    2: ("a reboot of the host", "drain the host and reboot it"),
    3: (
        "an end of the traffic between GPUs",
        (
            "drain the host, and end all programs that use NVLink; busbw check --only "
            f"gpu-recovery-action then shows the next step; often {RESET_GPU}"
        ),
    ),
    4: (
        "a reset once its work has ended: it runs with reduced capacity",
        f"start no new job; when the running ones have ended: {RESET_GPU}",
    ),
    5: (
        "a recovery of its IMEX domain",
        "drain all hosts of the NVLink domain, then on each: systemctl restart nvidia-imex",
    ),
    6: (
        "a reset of its PCIe bus",
        (
            "drain the host; reset the bus as nvidia-smi -h of this driver describes, or reboot the"
            " host"
        ),
    ),
    7: ("a reboot of the whole system", "drain the host and its chassis, and power it off and on"),
}
# Of those in the log: busbw notes a reset there (core/xids.py), so that it is known to be over.
EFFECTS_OF_ACTIONS = {1: Effect.RESET, 2: Effect.REBOOT, 4: Effect.RESET}

RECOVERY_ACTION = CheckRow(
    id="BW260",
    name="gpu-recovery-action",
    layer=Layer.GPU,
    title="recovery action that the driver asks for",
    right="none",
    why=(
        "The driver asks for it after a fault that it could not clear, as with Xid 154. Until "
        "then new programs on the GPU fail, or it has less memory or bandwidth."
    ),
    fix=(
        f"drain the host; {RESET_GPU} for action 1, a reboot for action 2; each action has its own"
        " steps"
    ),
    stays="until the next fault; if it comes back, run dcgmi diag -r 3 and replace the GPU",
    reads=("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",),
    sources=(
        "nvml.h, nvmlDeviceGpuRecoveryAction_t",
        "NVIDIA GPU memory error management, recovery action flag",
    ),
)


@per_gpu(RECOVERY_ACTION)
def check_recovery_action(gpu: GpuHealth) -> Finding:
    action = gpu.recovery_action
    if action is None:
        return not_offered(
            gpu.label, "its driver does not report a recovery action; drivers from 570 on do"
        )
    evidence = nvml_evidence(
        gpu, "FieldValues, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", action, "0: none"
    )
    if not action:
        return passed(gpu.label, "the driver asks for no recovery", evidence)
    unknown_action = (f"action {action}, which busbw does not know", ASK_DRIVER)
    request, steps = ACTIONS.get(action, unknown_action)
    fix = filled(steps, gpu=gpu.index)
    return failed(gpu.label, f"the driver asks for {request}", evidence, fix=fix)
