"""Rules of the kernel log on memory, processors and processes."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import DAY_S, GPUD, NPD, REPLACED, KernelRule, Sign, Texts, line, rule

FAIL, WARN, PASS = Verdict.FAIL, Verdict.WARN, Verdict.PASS

_BAD_MEMORY = "memory that failed once fails again"
_BAD_CPU = "a processor that failed once fails again"
MACHINE_CHECK = rule(
    Texts(
        "BW250",
        "hardware-errors-logged",
        Layer.CPU,
        "errors of memory and processors in the log",
        "Data in memory or a processor was lost. The kernel kills the process that uses it, or"
        " stops. More than 10 corrected errors a day of one part announce that.",
        "drain the host first; ras-mc-ctl --errors (or ipmitool sel list) names the module;"
        " replace it",
        REPLACED,
        (
            (
                "Linux, Documentation/arch/x86/x86_64/machinecheck.rst: bit 61 of a bank's status"
                " is UC"
            ),
            "Meta GCM, check-syslogs mce",
        ),
    ),
    Sign(
        line(r"EDAC (?P<subject>MC\d+): [1-9]\d* UE (?P<what>.*)"),
        FAIL,
        "uncorrected memory error: {what}",
        _BAD_MEMORY,
    ),
    Sign(
        line(
            r"(?P<subject>CPU \d+): Machine Check(?: Exception)?: \w+ Bank (?P<bank>\d+):"
            r" [abef][0-9a-f]{15}\b"
        ),
        FAIL,
        "uncorrected machine check in bank {bank}",
        _BAD_CPU,
        left_over=True,
    ),
    Sign(
        line(r"Memory failure: (?P<page>0x[0-9a-f]+): (?P<what>.*)"),
        FAIL,
        "the kernel gave up a page of memory: {what}",
        _BAD_MEMORY,
    ),
    Sign(
        line(r"MCE: Killing (?P<task>\S+) due to hardware memory corruption"),
        FAIL,
        "memory failed under process {task}",
        _BAD_MEMORY,
    ),
    Sign(line(r"Uncorrected hardware memory error"), FAIL, "uncorrected memory error", _BAD_MEMORY),
    Sign(
        line(r"\[Hardware Error\]: +(?:Uncorrected.* error|System Fatal error)"),
        FAIL,
        "uncorrected hardware error",
        _BAD_CPU,
        left_over=True,
    ),
    # A few corrected errors a day are normal, as BW154 has it.
    Sign(
        line(r"EDAC (?P<subject>MC\d+): (?P<times>\d+) CE "),
        WARN,
        "corrected memory errors",
        "many announce one that cannot be corrected",
        DAY_S,
        least=11,
    ),
    Sign(
        line(r"\[Hardware Error\]: +(?:Corrected error|event severity: corrected)"),
        WARN,
        "corrected hardware errors",
        "many announce one that cannot be corrected",
        DAY_S,
        least=11,
    ),
    Sign(
        line(r"\[Hardware Error\]: +Deferred error"),
        WARN,
        "damaged data that nothing has used",
        _BAD_MEMORY,
        left_over=True,
    ),
    Sign(
        line(r"\[Hardware Error\]: +event severity: fatal"),
        FAIL,
        "firmware reports a fatal error",
        _BAD_CPU,
        left_over=True,
    ),
    Sign(
        line(r"\[Hardware Error\]: +event severity: recoverable"),
        WARN,
        "firmware reports an error that the system survived",
        "other rules name the part",
        DAY_S,
    ),
)

OOM = rule(
    Texts(
        "BW251",
        "oom-kill",
        Layer.CPU,
        "processes killed for lack of memory",
        "The kernel killed a process because the host had no memory left. It may have been one of"
        " the system's, such as slurmd. A kill within a cgroup's limit concerns the job alone.",
        "find what used the memory: free -h; slabtop -o; limit jobs to less than the host has"
        " (MemSpecLimit of Slurm); restart services that were killed",
        "a limit in slurm.conf or of the pods stays",
        ("Linux, mm/oom_kill.c", NPD),
    ),
    Sign(
        line(r"Memory cgroup out of memory: Kill(?:ed)? process \d+ \((?P<subject>[^)]*)\)"),
        PASS,
        "killed within the memory limit of its job or container",
        "it concerns that job alone",
        DAY_S,
    ),
    Sign(
        line(r"[Oo]ut of memory(?: \([^)]*\))?: Kill(?:ed)? process \d+ \((?P<subject>[^)]*)\)"),
        WARN,
        "killed because the host had no memory left",
        "the memory is free again",
        DAY_S,
    ),
)

_RUNS_AGAIN = "the processor runs again, or the kernel would not log"
LOCKUP = rule(
    Texts(
        "BW252",
        "cpu-lockup",
        Layer.CPU,
        "processors that were stuck",
        "A processor ran kernel code for many seconds and did nothing else: a fault of a driver,"
        " the firmware or the hardware.",
        "dmesg shows the stack below the line: update the driver that it names; if it recurs with"
        " different stacks, replace the processor",
        "a new kernel or driver stays",
        ("Linux, Documentation/admin-guide/lockup-watchdogs.rst", GPUD),
    ),
    Sign(
        line(
            r"soft lockup - (?P<subject>CPU#\d+) stuck for (?P<time>\d+ ?s\w*)!(?:"
            r" \[(?P<task>[^\]]*)\])?"
        ),
        WARN,
        "stuck for {time} in {task}",
        _RUNS_AGAIN,
        DAY_S,
    ),
    Sign(
        line(r"hard LOCKUP on (?P<subject>cpu \d+)"),
        FAIL,
        "took no interrupt for 10 s",
        _RUNS_AGAIN,
        DAY_S,
    ),
    Sign(
        line(r"rcu.*(?:self-detected stall on CPU|detected (?:expedited )?stalls on CPUs)"),
        WARN,
        "RCU stall: a processor was stuck",
        _RUNS_AGAIN,
        DAY_S,
    ),
)

HUNG = rule(
    Texts(
        "BW253",
        "hung-task",
        Layer.KERNEL,
        "processes that hung in the kernel",
        "A process waited in the kernel for two minutes or more, usually for a disk, a network file"
        " system or a driver. BW124 looks for those that hang now.",
        "dmesg shows what it waited for below the line; busbw check --only stuck-processes",
        "depends on the cause",
        ("Linux, kernel/hung_task.c", NPD, GPUD),
    ),
    Sign(
        line(
            r"INFO: task (?P<subject>\S.*):\d+ blocked (?:in I/O wait )?for more than (?P<time>\d+)"
            r" seconds"
        ),
        WARN,
        "waited in the kernel for over {time} s",
        "the kernel stops logging after ten, and says nothing when it ends",
        DAY_S,
    ),
)

OOPS = rule(
    Texts(
        "BW254",
        "kernel-oops",
        Layer.KERNEL,
        "faults of the kernel",
        "The kernel met a fault of its own. It went on without the task, whose locks may be held"
        " for ever, or it stopped.",
        "drain the host and reboot it; report the stack below the line to the vendor of the module"
        " that it names",
        "a new kernel or driver stays",
        ("Linux, Documentation/admin-guide/bug-hunting.rst", NPD),
    ),
    Sign(
        line(
            r"(?:BUG: (?:unable to handle|kernel NULL pointer|Bad page state|scheduling while"
            r" atomic)|Oops: |general protection fault, |kernel BUG at |Internal error: Oops)"
        ),
        WARN,
        "fault of the kernel",
        "what the task held stays held",
    ),
    Sign(
        line(r"Kernel panic - not syncing: (?P<what>.*)"),
        FAIL,
        "the kernel stopped: {what}",
        "a kernel that stopped does nothing more",
    ),
)

_TOO_HOT = "the driver repeats it every five minutes while it lasts"
THERMAL = rule(
    Texts(
        "BW267",
        "cpu-thermal",
        Layer.CPU,
        "CPUs that were too hot",
        "A CPU above its temperature limit runs at a lower clock: the proxy threads of NCCL and the"
        " launch of kernels slow down.",
        "ipmitool sdr type Temperature; ipmitool sdr type Fan; check the air flow, the fans and the"
        " inlet temperature",
        "permanent: cooling",
        ("Linux, drivers/thermal/intel/therm_throt.c",),
    ),
    Sign(
        line(
            r"CPU\d+: (?P<part>Core|Package) temperature(?: is)? above threshold, (?:cpu|CPU) clock"
            r"(?: is)? throttled"
        ),
        WARN,
        "clocks were reduced because of heat ({part})",
        _TOO_HOT,
        DAY_S,
    ),
    Sign(
        line(r"(?P<subject>thermal_zone\d+): critical temperature reached"),
        FAIL,
        "its temperature was critical",
        "the kernel shuts the host down",
        DAY_S,
    ),
)

HOST_RULES: tuple[KernelRule, ...] = (MACHINE_CHECK, OOM, LOCKUP, HUNG, OOPS, THERMAL)
