"""Limits of this process, which ranks inherit: ulimit and CPU affinity."""

import json
from collections.abc import Callable, Iterator
from functools import wraps

from busbw.check.base import Check, check, failed, judged, passed, unread, warned
from busbw.check.machine import Machine, Part, gpus
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host import settings
from busbw.host.cpu import meminfo
from busbw.host.os_queries import allowed_cpus
from busbw.host.settings import UNLIMITED, capabilities, cpu_set

LIMITS_FILE = "/proc/self/limits"
MIN_THREADS = 4096
Judge = Callable[[Machine, str], Finding]
STATUS, MEMORY, IPC_LOCK = "/proc/self/status", "/proc/meminfo", 14  # linux/capability.h
MIN_LOCKED_BYTES = 1 << 30  # NCCL's buffers of one GPU and a few channels
MAX_OPEN_FILES = "Max open files"
MIN_OPEN_FILES = 131072
MAX_STACK = "Max stack size"
MIN_STACK_BYTES = 8 << 20
MAX_PROCESSES = "Max processes"
CPUS_PER_GPU = 2  # a rank's own thread and NCCL's proxy thread, which both poll
NODES = "/sys/devices/system/node"


def soft_limit(row: CheckRow, name: str) -> Callable[[Judge], Check]:
    """Makes a function of a soft limit of this process the check of `row`.

    It gets the limit with this name in /proc/self/limits: a number or `unlimited`.
    """

    def register(judge: Judge) -> Check:
        @check(row)
        @wraps(judge)
        def judge_limit(machine: Machine) -> Iterator[Finding]:
            reading = machine.read(LIMITS_FILE)
            limit = settings.soft_limit(reading.text or "", name)
            if limit is None:
                yield unread("", reading, "the limits of this process")
            else:
                yield judge(machine, limit)

        return judge_limit

    return register


def threads_needed(machine: Machine) -> int:
    """Threads of one rank per GPU: OpenMP starts one per CPU, NCCL and data loaders more."""
    return max(MIN_THREADS, 2 * len(machine.host.gpus) * machine.host.cpus)


MEMLOCK = CheckRow(
    id="BW130",
    name="memlock",
    layer=Layer.LIMITS,
    title="locked memory limit",
    right="unlimited, at least the size of RAM, or the capability IPC_LOCK",
    why=(
        "RDMA registers memory, which locks it. With a low limit NCCL fails with ibv_reg_mr or"
        " ibv_create_qp: cannot allocate memory."
    ),
    fix="ulimit -l unlimited",
    stays=(
        "in /etc/security/limits.conf (* - memlock unlimited); for services "
        "LimitMEMLOCK=infinity; for containers --ulimit memlock=-1 or --cap-add IPC_LOCK"
    ),
    reads=(LIMITS_FILE, STATUS, MEMORY),
    sources=("NCCL user guide, troubleshooting",),
)


@soft_limit(MEMLOCK, "Max locked memory")
def check_memlock(machine: Machine, limit: str) -> Finding:
    evidence = Evidence(LIMITS_FILE, f"Max locked memory {limit}", "unlimited")
    if limit == UNLIMITED:
        return passed("", "locked memory is not limited", evidence)
    ram = meminfo(machine, "MemTotal")
    if int(limit) >= ram > 0:
        return passed(
            "",
            f"locked memory is limited to {limit} bytes, all of the RAM or more",
            evidence,
            Evidence(MEMORY, str(ram)),
        )
    if not machine.ports:
        return passed(
            "", f"locked memory is limited to {limit} bytes; no RDMA device needs more", evidence
        )
    exempt = IPC_LOCK in capabilities(machine.text(STATUS) or "")
    if exempt and machine.container:
        capability = Evidence(STATUS, "CapEff has IPC_LOCK")
        return passed(
            "",
            f"locked memory is limited to {limit} bytes, which IPC_LOCK lifts for this container",
            evidence,
            capability,
        )
    if exempt:
        return warned(
            "",
            f"locked memory is limited to {limit} bytes; root is exempt, jobs of other users"
            " are not",
            evidence,
            fix=MEMLOCK.fix,
        )
    if int(limit) < MIN_LOCKED_BYTES:
        return failed(
            "",
            f"locked memory is limited to {limit} bytes: RDMA cannot register NCCL's buffers",
            evidence,
            fix=MEMLOCK.fix,
        )
    return warned("", f"locked memory is limited to {limit} bytes", evidence, fix=MEMLOCK.fix)


OPEN_FILES = CheckRow(
    id="BW131",
    name="open-files",
    layer=Layer.LIMITS,
    title="open file limit",
    right=f"{MIN_OPEN_FILES} or more",
    why=(
        "NCCL opens files and sockets for each peer: a job of 144 ranks may need 32,000. Large "
        "jobs otherwise end with: Too many open files."
    ),
    fix=f"ulimit -n {MIN_OPEN_FILES}",
    stays=(
        f"in /etc/security/limits.conf (* - nofile {MIN_OPEN_FILES}); for services "
        f"LimitNOFILE={MIN_OPEN_FILES}; for containers --ulimit nofile={MIN_OPEN_FILES}"
    ),
    reads=(LIMITS_FILE,),
    sources=("NCCL user guide, troubleshooting: file descriptors",),
)


@soft_limit(OPEN_FILES, MAX_OPEN_FILES)
def check_open_files(machine: Machine, limit: str) -> Finding:
    return judged(
        right=limit == UNLIMITED or int(limit) >= MIN_OPEN_FILES,
        subject="",
        good=f"a process may open {limit} files",
        bad=f"a process may open {limit} files, too few for large jobs",
        evidence=(Evidence(LIMITS_FILE, f"{MAX_OPEN_FILES} {limit}", f"{MIN_OPEN_FILES} or more"),),
        fix=OPEN_FILES.fix,
    )


STACK = CheckRow(
    id="BW132",
    name="stack",
    layer=Layer.LIMITS,
    title="stack size limit",
    right="8 MiB or more, but not unlimited",
    why=(
        "With unlimited, glibc gives threads stacks of only 2 MiB. NCCL before 2.28 may then crash"
        " during its topology search."
    ),
    fix="ulimit -s 8192",
    stays=(
        "remove stack from /etc/security/limits.conf; for services LimitSTACK=8M; for containers"
        " --ulimit stack=8388608"
    ),
    reads=(LIMITS_FILE,),
    sources=("NCCL user guide, troubleshooting: stack size", "pthread_create(3)"),
)


@soft_limit(STACK, MAX_STACK)
def check_stack(machine: Machine, limit: str) -> Finding:
    text = f"the stack is limited to {limit} bytes"
    if limit == UNLIMITED:
        text = "the stack is unlimited: threads get 2 MiB"
    return judged(
        right=limit != UNLIMITED and int(limit) >= MIN_STACK_BYTES,
        subject="",
        good=text,
        bad=text,
        evidence=(Evidence(LIMITS_FILE, f"{MAX_STACK} {limit}", f"{MIN_STACK_BYTES} bytes"),),
        fix=STACK.fix,
    )


PROCESS_COUNT = CheckRow(
    id="BW133",
    name="process-count",
    layer=Layer.LIMITS,
    title="per-user limit of processes and threads",
    right=f"2 x GPUs x CPUs, and {MIN_THREADS} or more",
    why=(
        "A rank may start a thread for each CPU (OpenMP), in addition to those of NCCL and data "
        "loaders. Above the limit threads fail to start."
    ),
    fix="ulimit -u {least}",
    stays="in /etc/security/limits.conf (* - nproc unlimited); for services LimitNPROC=infinity",
    reads=(LIMITS_FILE, "/sys/devices/system/cpu/online"),
    sources=("getrlimit(2): RLIMIT_NPROC", "libgomp manual, OMP_NUM_THREADS"),
)


@soft_limit(PROCESS_COUNT, MAX_PROCESSES)
def check_process_count(machine: Machine, limit: str) -> Finding:
    least = threads_needed(machine)
    return judged(
        right=limit == UNLIMITED or int(limit) >= least,
        subject="",
        good=f"a user may have {limit} processes and threads",
        bad=(
            f"a user may have {limit} processes and threads; the ranks of this machine may need"
            f" {least}"
        ),
        evidence=(Evidence(LIMITS_FILE, f"{MAX_PROCESSES} {limit}", f"{least} or more"),),
        fix=filled(PROCESS_COUNT.fix, least=least),
    )


ALLOWED_CPUS = CheckRow(
    id="BW136",
    name="allowed-cpus",
    layer=Layer.LIMITS,
    title="CPUs that this process may use",
    right=f"{CPUS_PER_GPU} or more per GPU, and some on the NUMA node of each GPU",
    why=(
        "Ranks that share CPUs wait for each other. NCCL binds its threads near the GPU, but only"
        " to allowed CPUs."
    ),
    fix=(
        "start the job with CPUs {cpus} (in Slurm --cpus-per-task, in Docker --cpuset-cpus, with"
        " taskset: taskset -c {cpus})"
    ),
    stays="permanent in the job or container spec",
    reads=("sched_getaffinity(2)", "/sys/devices/system/cpu/online", f"{NODES}/node*/cpulist"),
    sources=("sched_setaffinity(2)", "NCCL user guide, NCCL_IGNORE_CPU_AFFINITY"),
)


@check(ALLOWED_CPUS)
def check_allowed_cpus(machine: Machine) -> Iterator[Finding]:
    """The CPUs that this process may use, and with it the ranks."""
    reading = machine.call("allowed cpus", allowed_cpus)
    if reading.text is None:
        yield unread("", reading, "the affinity of this process")
        return
    allowed = set(json.loads(reading.text))
    # A container or job may have only some of the GPUs on PCI.
    listed = {gpu.bus_id for gpu in machine.host.gpus}
    cards = [card for card in gpus(machine) if card.device.bdf in listed or not listed]
    online = machine.text("/sys/devices/system/cpu/online") or ""
    fix = filled(ALLOWED_CPUS.fix, cpus=online or "CPUS")
    evidence = Evidence(
        "sched_getaffinity(2)",
        f"{len(allowed)} CPUs",
        f"{max(1, CPUS_PER_GPU * len(cards))} or more of {online}",
    )
    local = {card.name: _near_cpus(machine, card) for card in cards}
    far = [name for name, cpus in local.items() if cpus and not cpus & allowed]
    if len(allowed) < CPUS_PER_GPU * len(cards):
        yield warned(
            "",
            f"{counted(len(allowed), 'CPU')} for {counted(len(cards), 'GPU')}",
            evidence,
            fix=fix,
        )
    if far:
        yield warned(
            "",
            f"none of the allowed CPUs is on the NUMA node of {', '.join(far)}",
            evidence,
            fix=fix,
        )
    elif len(allowed) >= CPUS_PER_GPU * len(cards):
        yield passed("", f"this process may run on {counted(len(allowed), 'CPU')}", evidence)


def _near_cpus(machine: Machine, card: Part) -> set[int]:
    """The CPUs on the NUMA node of a card; empty if that is not known."""
    node = machine.text(f"{card.path}/numa_node")
    return cpu_set(machine.text(f"{NODES}/node{node}/cpulist") or "")
