"""The fabric of NVSwitches: its state, its manager, and IMEX between hosts.

Also what checks of NVLink share: the links that a GPU should have, and a finding for each GPU.
"""

from collections.abc import Callable, Iterator

from busbw.check.base import (
    check,
    failed,
    judged,
    not_offered,
    passed,
    skipped,
    unanswered,
    unknown,
    warned,
)
from busbw.check.gpu.per_gpu import WITHHELD, confined, no_gpus, unreadable
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu import nvlink_rate
from busbw.host.gpu_health import FabricState, GpuHealth, Nvlink
from busbw.host.nvidia_services import (
    ABSENT,
    FABRIC_MANAGER,
    fabric_manager,
    imex,
    imex_domain,
    imex_nodes,
    services,
    states,
    version,
)
from busbw.host.nvml_health import read_health
from busbw.model.hardware import Generation, generations

# Words in the names of cards whose links are joined by bridges that a server may lack.
BRIDGED_MODELS = frozenset({"PCIE", "FHHL", "NVL", "ACTIVE", "A6000"})
RACK_MODEL = "NVIDIA GB"  # GB200 and GB300 NVL72
RACK_FIX = (
    "check the fabric manager of the rack (NMX-Controller on an NVLink switch tray) and its log"
)
FAILED_STATE = "failed"  # of systemd: the service ended with an error
STATE_COMPLETED, STATE_NOT_SUPPORTED, STATUS_SUCCESS, HEALTH_TRUE = 3, 0, 0, 1
STATES = {1: "Not started", 2: "In progress", 3: "Completed"}  # nvml.h, NVML_GPU_FABRIC_STATE_*
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: the shift of each field of two bits.
HEALTH = {
    0: "degraded bandwidth",
    2: "route recovery in progress",
    4: "route unhealthy",
    6: "access timeout recovery in progress",
}
CHANNELS = "/dev/nvidia-caps-imex-channels"
IMEX_COMMAND = "nvidia-imex-ctl -N"
NODE_READY, DOMAIN_UP = "READY", "UP"
MAKE_CHANNEL = (
    f"mkdir -p {CHANNELS}; mknod {CHANNELS}/channel0 c $(grep imex-channels /proc/devices | cut -d'"
    " ' -f1) 0"
)
NAMED_NODES = 3  # nodes in a message


def gpu_words(gpu: GpuHealth) -> set[str]:
    """The words of a GPU's name, in capitals."""
    return set(gpu.name.upper().replace("-", " ").split())


def bridged(gpu: GpuHealth) -> bool:
    """Whether it is a card whose NVLinks need a bridge."""
    return bool(gpu_words(gpu) & BRIDGED_MODELS)


def expected_links(gpu: GpuHealth) -> Generation | None:
    """The links of a GPU on a board with NVLink.

    None for cards with bridges and for models that busbw does not know.
    """
    if bridged(gpu):
        return None
    return next((row for row in generations() if gpu_words(gpu).intersection(row.names)), None)


def nominal_rate(gpu: GpuHealth, link: Nvlink) -> float | None:
    """Nominal bytes per second of a link in one direction."""
    return nvlink_rate(link.speed_mbps, gpu.sm or 0, [link.version])


def each_linked_gpu(machine: Machine, judge: Callable[[GpuHealth], Finding]) -> Iterator[Finding]:
    """The finding on every GPU with an active link.

    Skip for GPUs without one, unknown for GPUs that NVML cannot read.
    """
    gpus = read_health(machine)
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    for gpu in gpus.gpus:
        if gpu.error or gpu.links is None:
            yield unreadable(gpu, "links", "its links")
        elif not gpu.active:
            yield skipped("no active NVLink", gpu.label)
        else:
            yield judge(gpu)


def _has_unknown_remote(gpu: GpuHealth) -> bool:
    """Whether NVML does not report where each active link of a GPU leads."""
    if gpu.error or gpu.links is None:
        return True
    return any(link.remote is None for link in gpu.active)


def switched(machine: Machine) -> tuple[tuple[GpuHealth, ...], Finding | None]:
    """The GPUs behind NVSwitch, and the finding if there are none: skip or unknown."""
    gpus = read_health(machine)
    missing = no_gpus(machine, gpus)
    if missing:
        return (), missing
    behind = tuple(gpu for gpu in gpus.gpus if gpu.switched)
    if behind:
        return behind, None
    unclear = [gpu.label for gpu in gpus.gpus if _has_unknown_remote(gpu)]
    if unclear:
        unreadable = any(
            (gpu.error and WITHHELD not in gpu.error) or (not gpu.error and gpu.links is None)
            for gpu in gpus.gpus
        )
        make = unknown if unreadable else not_offered
        message = f"NVML does not report where the links of {', '.join(unclear)} lead"
        return (), make("", message)
    return (), skipped("no GPU is behind NVSwitch")


FABRIC = CheckRow(
    id="BW033",
    name="nvlink-fabric",
    layer=Layer.NVLINK,
    title="fabric state of GPUs behind NVSwitch",
    right=(
        "Completed, with status success and no problem in the health mask; the fabric manager "
        "has not failed, and before Hopper it is active"
    ),
    why=(
        "Until the fabric manager has configured the NVSwitches, CUDA fails with error 802, "
        "system not yet initialized. Each GPU by itself looks healthy: one site took 20 days to "
        "notice that its fabric manager was down."
    ),
    fix=(
        "systemctl start nvidia-fabricmanager; journalctl -u nvidia-fabricmanager; its version must"
        " match the driver"
    ),
    stays="systemctl enable nvidia-fabricmanager starts it at each boot",
    reads=("nvmlDeviceGetGpuFabricInfoV", "systemctl show nvidia-fabricmanager"),
    sources=("Fabric Manager user guide", "nvml.h, nvmlGpuFabricInfo_t"),
)


@check(FABRIC)
def check_fabric(machine: Machine) -> Iterator[Finding]:
    """A finding for each GPU behind NVSwitch, and on the service for those without a state."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
    unreported = [
        gpu for gpu in gpus if gpu.fabric is None or gpu.fabric.state == STATE_NOT_SUPPORTED
    ]
    if unreported:
        yield _judge_service(machine, ", ".join(gpu.label for gpu in unreported))
    elif gpus:
        joined = any(gpu.fabric and gpu.fabric.state == STATE_COMPLETED for gpu in gpus)
        yield from _service_failed(machine, joined=joined)
    for gpu in gpus:
        if gpu.fabric and gpu not in unreported:
            yield _judge_fabric(gpu, gpu.fabric)


def _judge_fabric(gpu: GpuHealth, fabric: FabricState) -> Finding:
    state = STATES.get(fabric.state, str(fabric.state))
    evidence = Evidence(
        f"nvmlDeviceGetGpuFabricInfoV, {gpu.label}",
        f"{state}, status {fabric.status}",
        "Completed, status 0",
    )
    fix = RACK_FIX if gpu.name.startswith(RACK_MODEL) or fabric.cluster else FABRIC.fix
    if fabric.state != STATE_COMPLETED:
        return failed(
            gpu.label, f"fabric state {state}: CUDA fails with error 802", evidence, fix=fix
        )
    if fabric.status != STATUS_SUCCESS:
        return failed(
            gpu.label,
            f"the GPU could not join its fabric: status {fabric.status}",
            evidence,
            fix=fix,
        )
    problems = [
        text for shift, text in HEALTH.items() if fabric.health_mask >> shift & 3 == HEALTH_TRUE
    ]
    if problems:
        health = Evidence(f"health mask, {gpu.label}", f"{fabric.health_mask:#x}", "no problem")
        return warned(
            gpu.label, f"fabric state {state}, but {', '.join(problems)}", evidence, health, fix=fix
        )
    return passed(gpu.label, f"fabric state {state}", evidence)


def _service_failed(machine: Machine, *, joined: bool) -> Iterator[Finding]:
    """A finding if the service failed, `joined` if a GPU is still in the fabric.

    One that is inactive may run elsewhere, such as in a container.
    """
    state = states(machine.call("nvidia_services", services).text or "").get(FABRIC_MANAGER, "")
    if state == FAILED_STATE:
        when = "after" if joined else "before"
        message = (
            f"the fabric manager failed {when} the GPUs joined their fabric: no new job can start"
            " on them"
        )
        evidence = Evidence(f"systemctl show {FABRIC_MANAGER}", state, "active")
        first = "drain the host, as its start may end running jobs; " if joined else ""
        yield failed("", message, evidence, fix=first + FABRIC.fix)


def _judge_service(machine: Machine, named: str) -> Finding:
    reading = machine.call("nvidia_services", services)
    state = states(reading.text or "").get(FABRIC_MANAGER, "")
    evidence = Evidence(f"systemctl show {FABRIC_MANAGER}", state or reading.reason, "active")
    if state == "active":
        return passed(
            "",
            f"the fabric manager is active; the driver reports no fabric state for {named}",
            evidence,
        )
    # It can run in a container of NVIDIA's GPU operator.
    if state in ("", ABSENT) or machine.hypervisor or confined(machine):
        message = (
            f"the driver reports no fabric state for {named}, and the fabric manager is not visible"
            " here"
        )
        return unanswered("", message, reading.reason or "it has no such service", evidence)
    return failed(
        "", f"the fabric manager is {state}: CUDA fails with error 802", evidence, fix=FABRIC.fix
    )


FABRIC_MANAGER_VERSION = CheckRow(
    id="BW034",
    name="nvlink-fabric-manager-version",
    layer=Layer.NVLINK,
    title="version of the fabric manager",
    right="the same as the driver",
    why=(
        "A fabric manager whose version differs from the driver does not start. After the next"
        " reboot CUDA fails with error 802."
    ),
    fix=(
        "drain the host, as a restart ends all jobs on its GPUs; install nvidia-fabricmanager "
        "{driver} instead of {has}; then: systemctl restart nvidia-fabricmanager"
    ),
    stays="yes, if driver and fabric manager are updated together: hold both packages",
    reads=("nv-fabricmanager --version", "nvmlSystemGetDriverVersion"),
    sources=("Fabric Manager user guide, installation",),
)


@check(FABRIC_MANAGER_VERSION)
def check_fabric_manager_version(machine: Machine) -> Iterator[Finding]:
    """The installed fabric manager; in a virtual machine it may run outside."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
        return
    driver = read_health(machine).driver
    reading = machine.call("fabricmanager_version", fabric_manager)
    has = version(reading.text or "")
    if not has and any(gpu.fabric and gpu.fabric.cluster for gpu in gpus):
        yield skipped(
            "no fabric manager here: an NVLink domain of several hosts may be managed elsewhere"
        )
    elif not has and (machine.hypervisor or confined(machine)):
        yield skipped(
            f"no fabric manager in {confined(machine) or 'this virtual machine'}: it may run"
            " outside"
        )
    elif not has or not driver:
        noun = "the driver" if has else "the fabric manager"
        yield unanswered(
            "",
            f"the version of {noun} cannot be read: {reading.reason or 'not reported'}",
            reading.reason or "it has no version",
        )
    else:
        yield judged(
            right=has == driver,
            subject="",
            good=f"fabric manager and driver are {has}",
            bad=f"fabric manager {has}, but driver {driver}",
            evidence=(Evidence("nv-fabricmanager --version", has, driver),),
            fix=filled(FABRIC_MANAGER_VERSION.fix, driver=driver, has=has),
            fails=True,
        )


IMEX = CheckRow(
    id="BW035",
    name="nvlink-imex",
    layer=Layer.NVLINK,
    title="IMEX, on hosts that share one NVLink domain (GB200 NVL72)",
    right=f"{CHANNELS} has a channel, the domain is {DOMAIN_UP} and all its nodes are {NODE_READY}",
    why="Without IMEX, NCCL silently uses the NICs between hosts instead of NVLink.",
    fix=(
        "end the jobs of the domain, then on all nodes of /etc/nvidia-imex/nodes_config.cfg:"
        " systemctl restart nvidia-imex"
    ),
    stays=(
        "systemctl enable nvidia-imex (not in Kubernetes, where ComputeDomains start it); "
        "for the channel, the option NVreg_CreateImexChannel0=1 of the module nvidia"
    ),
    reads=(f"{CHANNELS}/channel*", IMEX_COMMAND, "nvmlDeviceGetGpuFabricInfoV"),
    sources=("NVIDIA IMEX service for NVLink networks, user guide",),
)


@check(IMEX)
def check_imex(machine: Machine) -> Iterator[Finding]:
    """The channels of IMEX, and its domain with all nodes."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
        return
    if not any(gpu.fabric and gpu.fabric.cluster for gpu in gpus):
        known = any(gpu.fabric for gpu in gpus)
        if known:
            yield skipped("the NVLink domain of this machine has no other hosts")
        else:
            yield not_offered("", "NVML reports no fabric for these GPUs")
        return
    yield _judge_channels(machine)
    yield from _judge_domain(machine)


def _judge_channels(machine: Machine) -> Finding:
    names = [name for name in machine.names(CHANNELS) if name.startswith("channel")]
    evidence = Evidence(
        CHANNELS, ", ".join(names[:NAMED_NODES]) or "no channel", "channel0 or another one"
    )
    if names:
        return passed("", f"{counted(len(names), 'IMEX channel')}", evidence)
    return warned(
        "",
        "no IMEX channel: NCCL uses the NICs between hosts, not NVLink",
        evidence,
        fix=MAKE_CHANNEL,
    )


def _judge_domain(machine: Machine) -> Iterator[Finding]:
    reading = machine.call("imex", imex)
    nodes, domain = imex_nodes(reading.text or ""), imex_domain(reading.text or "")
    not_ready = {address: state for address, state in nodes.items() if state != NODE_READY}
    ready = f"{len(nodes) - len(not_ready)} of {len(nodes)} nodes {NODE_READY}"
    evidence = Evidence(
        IMEX_COMMAND,
        f"domain {domain or 'not reported'}, {ready}",
        f"{DOMAIN_UP}, all {NODE_READY}",
    )
    # The state of the domain alone does not say that all nodes are ready.
    if not nodes and domain in ("", DOMAIN_UP):
        reason = reading.reason or "no node in the answer"
        yield unanswered(
            "", f"the state of IMEX cannot be read: {reason}", reason, fix=IMEX_COMMAND
        )
    elif not_ready:
        named = ", ".join(
            f"{address} {state}" for address, state in list(not_ready.items())[:NAMED_NODES]
        )
        yield warned(
            "",
            f"{counted(len(not_ready), 'IMEX node')} not {NODE_READY}: {named}",
            evidence,
            fix=IMEX.fix,
        )
    elif domain != DOMAIN_UP:
        yield warned(
            "", f"the IMEX domain is {domain or 'in an unknown state'}", evidence, fix=IMEX.fix
        )
    else:
        yield passed(
            "", f"IMEX domain {DOMAIN_UP}, {counted(len(nodes), 'node')} {NODE_READY}", evidence
        )
