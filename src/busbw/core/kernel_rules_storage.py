"""Rules of the kernel log on disks and file systems."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import DAY_S, GPUD, NPD, REPLACED, KernelRule, Sign, Texts, line, rule

FAIL, WARN = Verdict.FAIL, Verdict.WARN

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
        "drain the host first; nvme smart-log /dev/{subject} or smartctl -a /dev/{subject}, for dm-"
        " and md of the disks that lsblk -s /dev/{subject} names; replace the disk",
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

_TARGET = r"Lustre: (?P<subject>\S+?-(?:OST|MDT)[0-9a-f]{4}|MGC[\w.@-]+?)(?:-\w+)*: "
_GPFS = r"\b(?:mmfs\w*|GPFS)(?:\[\d+\])?: .*"
_MAY_BE_BACK = "nothing is logged when it is mounted again"
CLUSTER_FS = rule(
    Texts(
        "BW258",
        "cluster-file-system",
        Layer.KERNEL,
        "Lustre and GPFS (Storage Scale) that lost their servers or were unmounted",
        "Processes that use the file system hang, or their reads and writes fail: data loading and"
        " checkpoints of the whole job wait.",
        "lfs check servers or mmgetstate -a; check the server of {subject} and the network to it",
        "it ends when the server answers and the file system is mounted",
        ("Lustre, ptlrpc/import.c", "IBM Storage Scale, problem determination guide", GPUD),
    ),
    Sign(
        line(f"{_TARGET}Connection to .* was lost"),
        FAIL,
        "the connection was lost",
        "Lustre logs when it is restored",
        ends=line(f"{_TARGET}Connection restored to"),
    ),
    Sign(
        line(r"LustreError: .*This client was evicted by (?P<subject>[\w.-]+)"),
        WARN,
        "it evicted this client, whose open files failed",
        "the client connects again",
        DAY_S,
    ),
    Sign(
        line(r"LustreError: .*(?:LBUG\b|ASSERTION\()"),
        FAIL,
        "Lustre met a fault of its own",
        "its threads hang until the next boot",
    ),
    Sign(
        line(r"LustreError: .*operation (?P<what>\w+) to node (?P<subject>\S+) failed: rc = -\d+"),
        WARN,
        "{what} failed",
        "Lustre tries again",
        DAY_S,
    ),
    Sign(
        line(r"LNet(?:Error)?: .*(?:Timed out (?:tx|RDMA)|RDMA has timed out)"),
        WARN,
        "a message of LNet was not sent in time",
        "LNet connects again",
        DAY_S,
    ),
    Sign(
        line(
            _GPFS + r"(?:MMFS_SYSTEM_UNMOUNT|\[[EX]\].*unmounted|Unrecoverable file system"
            r" operation)(?:.*Volume (?P<subject>[\w-]+))?"
        ),
        FAIL,
        "GPFS unmounted a file system after an error",
        _MAY_BE_BACK,
        DAY_S,
    ),
    Sign(
        line(
            _GPFS + r"(?:MMFS_(?:ABNORMAL_SHUTDOWN|PHOENIX)|\[X\] |logAssertFailed|shutting down"
            r" abnormally)"
        ),
        FAIL,
        "the GPFS daemon ended",
        _MAY_BE_BACK,
        DAY_S,
    ),
    Sign(
        line(_GPFS + r"(?:MMFS_DISKFAIL|Disk failure)(?:.*Volume (?P<subject>[\w-]+))?"),
        FAIL,
        "GPFS lost a disk",
        _MAY_BE_BACK,
        DAY_S,
    ),
    Sign(
        line(_GPFS + r"(?:expelled|[Ll]ost membership|lost quorum|stale)"),
        FAIL,
        "this node was put out of the GPFS cluster",
        _MAY_BE_BACK,
        DAY_S,
    ),
    Sign(
        line(_GPFS + r"(?:\[E\] |MMFS_LONGDISKIO|Error=MMFS_)"),
        WARN,
        "an error of GPFS",
        "GPFS tries again",
        DAY_S,
    ),
)

STORAGE_RULES: tuple[KernelRule, ...] = (DISKS, FILESYSTEMS, NFS, CLUSTER_FS)
