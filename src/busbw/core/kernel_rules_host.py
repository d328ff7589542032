"""Rules of the kernel log on memory, processors, processes, disks and file systems."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import DAY_S, GPUD, KernelRule, Sign, Texts, line, rule

FAIL, WARN, PASS = Verdict.FAIL, Verdict.WARN, Verdict.PASS
NPD = "Kubernetes' node-problem-detector, kernel-monitor.json"
REPLACED = "a replaced part stays"

_BAD_MEMORY = "memory that failed once fails again"
_BAD_CPU = "a processor that failed once fails again"
MACHINE_CHECK = rule(
    Texts(
        "BW250",
        "hardware-errors-logged",
        Layer.CPU,
        "uncorrected errors of memory and processors in the log",
        "Data in memory or a processor was lost. The kernel kills the process that uses it, or"
        " stops.",
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

_NOT_DISKS = r"(?!fd\d|sr\d|loop\d|ram\d)"  # floppies, optical drives and files
_DATA = (
    r"(?:critical (?P<what>medium|target|space allocation|nexus)|I/O) error, dev "
    + _NOT_DISKS
    + r"<disk>"
)
_LOST = "the drive is gone until it is powered off"
_BLOCKS = "a bad block stays bad, but a path or cable may have recovered"
DISKS = rule(
    Texts(
        "BW255",
        "disk-errors",
        Layer.KERNEL,
        "errors of disks in the log",
        "A disk lost data or is gone. Checkpoints and data sets on it fail.",
        "drain the host first; nvme smart-log /dev/{subject} or smartctl -a /dev/{subject}; replace"
        " the disk",
        REPLACED,
        (
            "Linux, block/blk-core.c and drivers/nvme/host",
            "Meta GCM, check-syslogs io-errors",
            GPUD,
        ),
    ),
    Sign(
        line(
            r"nvme <disk>: (?:Disabling device after reset failure|Removing after probe"
            r" failure|Device not ready; aborting)"
        ),
        FAIL,
        "the drive does not answer and was switched off",
        _LOST,
    ),
    Sign(
        line(r"md/raid\S*: Disk failure on <disk>"),
        FAIL,
        "failed in its array",
        "the array runs without it until it is replaced",
    ),
    Sign(line(r"<disk>: no available path - failing I/O"), FAIL, "no path to it is left", _LOST),
    Sign(line(_DATA), FAIL, "a read or write failed", _BLOCKS, DAY_S),
    Sign(
        line(
            r"(?:Buffer I/O error on dev(?:ice)? |rejecting I/O to offline device.* )"
            + _NOT_DISKS
            + r"<disk>,"
        ),
        FAIL,
        "a read or write failed",
        _BLOCKS,
        DAY_S,
    ),
    Sign(
        line(r"\[<disk>\].*rejecting I/O to offline device"), FAIL, "it is offline", _BLOCKS, DAY_S
    ),
    Sign(
        line(
            r"(?:nvme <disk>: (?:controller is down; will reset|I/O .*timeout, (?:reset"
            r" controller|disable controller)))"
        ),
        WARN,
        "the drive did not answer and was reset",
        "the reset may have helped",
        DAY_S,
    ),
    Sign(
        line(r"attempt to access beyond end of device"),
        WARN,
        "a read or write beyond the end of a disk",
        _BLOCKS,
        DAY_S,
    ),
)

_SHUT = "it stays so until it is repaired and mounted again"
_WRITABLE = line(
    r"(?:EXT4-fs|EXT3-fs) \((?P<subject>[^)]+)\): (?:re-mounted|mounted filesystem).*(?:r/w|with"
    r" ordered)"
)
_MOUNTED = line(r"XFS \((?P<subject>[^)]+)\): (?:Mounting V\d|Ending (?:clean mount|recovery))")
FILESYSTEMS = rule(
    Texts(
        "BW256",
        "filesystem-errors",
        Layer.KERNEL,
        "damaged or read-only file systems in the log",
        "The file system is damaged, or the kernel made it read-only. Writes of jobs fail, and"
        " slurmd or kubelet may stop.",
        "drain the host first; check its disk with smartctl -a or nvme smart-log; replace a bad"
        " disk; if it is good, unmount the file system (for / boot a rescue system) and run fsck or"
        " xfs_repair on {subject}",
        "yes, once it is repaired; if the disk fails, it comes back",
        ("Linux, fs/ext4, fs/xfs, fs/btrfs", NPD, GPUD),
    ),
    Sign(
        line(
            r"EXT[34]-fs \((?P<subject>[^)]+)\): (?:Remounting filesystem read-only|I/O error while"
            r" writing superblock)"
        ),
        FAIL,
        "the kernel made it read-only",
        _SHUT,
        ends=_WRITABLE,
    ),
    Sign(
        line(r"(?P<kind>EXT[34])-fs error \(device (?P<subject>[^)]+)\)"),
        FAIL,
        "damaged ({kind})",
        _SHUT,
        ends=_WRITABLE,
    ),
    Sign(
        line(
            r"XFS \((?P<subject>[^)]+)\): (?:.*[Cc]orruption.*detected|.*Unmount and run"
            r" xfs_repair|.*[Ss]hutting down filesystem"
            r"|.*Filesystem has been shut down|log I/O error|metadata I/O error)"
        ),
        FAIL,
        "damaged or shut down (XFS)",
        _SHUT,
        ends=_MOUNTED,
    ),
    Sign(
        line(
            r"BTRFS\b.*\(device (?P<subject>[^ :)]+).*(?:forced readonly|Transaction aborted|parent"
            r" transid verify failed)"
        ),
        FAIL,
        "damaged or read-only (Btrfs)",
        _SHUT,
    ),
    Sign(
        line(r"\b(?P<kind>[A-Z0-9]+)(?: \((?P<subject>[^)]+)\))?: Remounting filesystem read-only"),
        FAIL,
        "the kernel made it read-only ({kind})",
        _SHUT,
    ),
)

NFS = rule(
    Texts(
        "BW257",
        "nfs-not-responding",
        Layer.KERNEL,
        "NFS servers that did not respond",
        "Processes that use the mount hang, and df, ls or the start of a job with them.",
        "ping {subject}; rpcinfo -t {subject} nfs; check the server and the network to it",
        "it ends when the server responds",
        ("Linux, net/sunrpc/clnt.c", GPUD),
    ),
    Sign(
        line(r"nfs: server (?P<subject>\S+) not responding, still trying"),
        FAIL,
        "it does not respond",
        "the kernel logs OK when the server responds again",
        ends=line(r"nfs: server (?P<subject>\S+) OK"),
    ),
    Sign(
        line(r"nfs: server (?P<subject>\S+) not responding, timed out"),
        WARN,
        "it did not respond in time",
        "the kernel gives up on soft mounts and does not say when they work again",
        DAY_S,
        line(r"nfs: server (?P<subject>\S+) OK"),
    ),
    Sign(
        line(r"nfs4_reclaim_open_state: Lock reclaim failed"),
        WARN,
        "a lock was lost",
        "the program that held it goes on",
        DAY_S,
    ),
)

HOST_RULES: tuple[KernelRule, ...] = (
    MACHINE_CHECK,
    OOM,
    LOCKUP,
    HUNG,
    OOPS,
    DISKS,
    FILESYSTEMS,
    NFS,
)
