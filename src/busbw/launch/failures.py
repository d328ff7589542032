"""What a launcher's last words mean: known failures of mpirun, in the words of Open MPI 4 (ORTE) and 5 (PRRTE), and of Slurm's srun."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.errors import BusbwError, NoMeasurement, StartFailed

TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """One known failure. `pattern` matches text whose white space is single blanks; its groups, and `host`, fill message and hint.

    One that `passes` is told as StartFailed.
    """

    pattern: str
    message: str
    hint: str
    passes: bool = False


DIED = r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on signal (?P<signal>\d+)"
KILLED, ABORTED = "Killed", "Aborted"
TASK_DIED = (
    r"srun: error: (?P<host>\S+): tasks? (?P<rank>[\d,-]+): (?P<why>Killed|Segmentation fault|Bus error|Aborted|Illegal instruction)"
)
_PROBE = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true"

# The first that matches wins: ssh's own words are nearer to the cause than what mpirun concludes from them.
FAILURES: tuple[Failure, ...] = (
    Failure(
        r"can not load PMIx library",
        "Slurm's PMIx plugin finds no PMIx library on this machine",
        "install it on every node (Debian: apt-get install libpmix-dev); srun --mpi=pmix -N 1 hostname shows that it loads",
    ),
    Failure(
        r"srun: error: Unable to allocate resources: (?P<why>.+?) (?:srun:|$)",
        "Slurm gave no resources: {why}",
        "sinfo   (partition, account and time go to --slurm-args '-p gpu -A team -t 10')",
    ),
    Failure(
        r"srun: error: Invalid generic resource \(gres\) specification",
        "Slurm knows no such GPUs",
        "sinfo -o '%N %G'   (what each node offers)",
    ),
    Failure(
        r"slurmstepd(?:-(?P<host>\S+))?: error: execve\(\): (?P<program>\S+): (?P<why>.+?) (?:srun:|slurmstepd|$)",
        "host {host}: {program} cannot be run there ({why})",
        "install busbw at the same path on every node, or on a file system they share: srun -w {host} ls -l {program}",
    ),
    Failure(
        r"srun: error: tasks? (?P<rank>[\d,-]+) launch failed: (?P<why>.+?) (?:srun:|slurmstepd|$)",
        "Slurm could not start rank {rank}: {why}",
        "look into slurmd's log on that node (scontrol show config | grep SlurmdLogFile): PMIx or the node's temporary directory failed",
    ),
    Failure(r"CANCELLED AT \S+ DUE TO TIME LIMIT", "Slurm's time limit ended the job", "ask for more: --slurm-args '-t 30'"),
    Failure(
        r"(?:Node failure on (?P<host>[^\s,]+)|CANCELLED AT \S+ DUE TO NODE FAILURE)",
        "host {host} was lost in the middle of the run",
        "scontrol show node {host}   (state and reason)",
    ),
    Failure(
        r"Segmentation fault.*?mca_pml_ob1_recv_frag_callback_match.*?ompi_mpi_init",
        "a rank died in MPI_Init: a message came before it was ready, a known fault of Open MPI 5 (open-mpi/ompi#12495)",
        "run it again",
        passes=True,
    ),
    Failure(
        TASK_DIED,
        "{ranks} on host {host} died ({why}){or_others}",
        "Killed: sacct -j JOB -o State,MaxRSS (OUT_OF_MEMORY?); Bus error: srun -w {host} df -h /dev/shm",
    ),
    Failure(
        r"(?P<why>Could not establish a configuration source|Unable to contact slurm controller|cannot stat file \S+slurm\.conf)",
        "Slurm does not answer: {why}",
        "scontrol ping   (is slurm.conf found, and slurmctld running?)",
    ),
    Failure(
        r"Could not resolve hostname (?P<host>\S+?):? ",
        "host {host}: its name does not resolve",
        "getent hosts {host}   (put it into /etc/hosts or use its address)",
    ),
    Failure(
        r"connect to host (?P<host>\S+) port (?P<port>\d+): (?P<why>No route to host|Network is unreachable)",
        "host {host}: {why}",
        "ip route get {host}",
    ),
    Failure(
        r"connect to host (?P<host>\S+) port (?P<port>\d+): (?P<why>[A-Z][a-z]+(?: [a-z]+){0,3})",
        "host {host} does not answer on port {port} ({why})",
        _PROBE + "   (another port: export OMPI_MCA_plm_rsh_args='-p 22222')",
    ),
    Failure(
        r"(?:(?P<host>\S+): )?Permission denied \([a-z-]+(?:,[a-z-]+)*\)",  # in brackets the ways to log in that are left
        "host {host}: ssh may not log in without a password (permission denied)",
        "ssh-copy-id {host}   (then " + _PROBE + ")",
    ),
    Failure(
        r"Host key verification failed",
        "host {host}: ssh does not know its host key",
        "ssh-keyscan {host} >> ~/.ssh/known_hosts   (after comparing the key)",
    ),
    Failure(
        r"error while loading shared libraries: (?P<library>\S+?):",
        "host {host}: {library} was not found there",
        "ssh {host} 'echo $LD_LIBRARY_PATH'   (a login without terminal must find Open MPI)",
    ),
    Failure(
        r"(?:orted|prted): (?:command not found|No such file|not found)|Daemon exit status: 127",
        "host {host}: Open MPI's daemon (orted or prted) was not found there",
        "install the same Open MPI at the same path on every host, or give --prefix: ssh {host} 'command -v prted orted'",
    ),
    Failure(
        r"PMIx detected a call to mkdir was unable to create the desired directory: Directory: (?P<path>.+?) Error: (?P<why>.+?) Please",
        "Open MPI cannot make its directory {path} on this host ({why})",  # daemons of other hosts do not say it
        "TMPDIR=/tmp busbw run ...   (or another directory that can be written: mktemp -d shows it)",
    ),
    Failure(
        r"call to mkdir was unable to create the desired directory: Directory: (?P<path>.+?) Error: (?P<why>.+?) Please"
        r"(?:.*?\[(?P<host>\S+):\d+\] \S+ ORTE_ERROR_LOG: Error in file \S+session_dir)?",
        "host {host}: Open MPI cannot make its directory {path} there ({why})",
        "ssh {host} mktemp -d   (until that works: set TMPDIR there to a directory that can be written)",
    ),
    Failure(
        r"No network interfaces were found for out-of-band",
        "host {host}: it has no interface of that name for MPI's daemons",
        "give the network instead of a name: --ifname 10.1.0.0/16   (ip -brief address)",
    ),
    Failure(
        r"Daemon exit status: 213",  # all that Open MPI 5 says of either
        "host {host}: it has no interface of that name for MPI's daemons, or no directory for their temporary files",
        "give the network instead of a name: --ifname 10.1.0.0/16   (ip -brief address); or set TMPDIR there, until this works: "
        "ssh {host} mktemp -d",
    ),
    Failure(
        r"not enough slots available .*?satisfy the (?P<asked>\d+)",
        "{asked} ranks were asked for, but the hosts have fewer slots",
        "give slots: --hosts h1:8,h2:8   ('h1:h2' is host h1 with slots h2; hosts are separated by commas)",
    ),
    Failure(r"attempt to run as root", "mpirun refuses to run as root", "add --allow-run-as-root, or run as another user"),
    Failure(
        r"(?:could not access|not access) an executable:? Executable: (?P<program>\S+) Node: (?P<host>\S+)",
        "host {host}: {program} does not exist or cannot be run there",
        "install busbw at the same path on every host: ssh {host} ls -l {program}",
    ),
    Failure(
        DIED,
        "rank {rank} on host {host} died of signal {signal} ({signal_name})",
        "{signal_hint}",
    ),
    Failure(
        r"(?P<path>/\S+): Permission denied",
        "host {host}: {path} may not be used there (permission denied)",
        "ssh {host} ls -l {path}   (is it executable, and is its file system mounted without noexec?)",
    ),
    Failure(
        r"lost communication with a remote daemon.*?Remote daemon: \S+ on node (?P<host>[^\s,]+)",
        "host {host} was lost in the middle of the run",
        _PROBE + "   (then its kernel log: ssh {host} dmesg | tail)",
    ),
    Failure(
        r"daemon failed to report back.*?Remote host: (?P<host>\S+) Daemon exit status: (?P<code>\d+)",
        "host {host} could not be started: its launch agent ended with {code}",
        _PROBE,
    ),
    Failure(
        r"daemon failed to report back|unable to reliably start one or more daemons|unable to complete a TCP connection",
        "a host's daemon could not be started or did not call back ({host})",
        _PROBE + "   (a firewall or a wrong interface: --ifname 10.1.0.0/16)",
    ),
)

_REMOTE_HOST = re.compile(r"Remote host: (\S+)")
_SIGNAL_HINTS: dict[int, str] = {
    signal.SIGKILL: "ssh {host} dmesg | tail   (out of memory, or killed by somebody)",
    signal.SIGBUS: "df -h /dev/shm   (shared memory is full: containers need --shm-size or --ipc=host)",
    signal.SIGTERM: "somebody or the scheduler ended it: ask for more time",
}


def explain(status: int, stderr_tail: str, hosts: Sequence[str] = ()) -> BusbwError:
    """Why a launcher ended with `status` (exit code; -N where signal N ended it), from the end of its stderr and the hosts it was given."""
    if error := known(stderr_tail, hosts):
        return error
    lines = [line.strip() for line in stderr_tail.replace("\0", "").splitlines() if line.strip().strip("-")]
    how = f"died of {signal_words(-status)}" if status < 0 else f"ended with {status}"
    signalled = status - 128 in list(signal.Signals)
    how += f", as it does when a rank dies of {signal_words(status - 128)}" if signalled else ""
    said = "; its last words: " + " / ".join(lines[-TAIL_LINES:]) if lines else ", without an error message"
    where = f" on {', '.join(hosts)}" if hosts else ""
    return NoMeasurement(f"the launcher{where} {how}{said}", "busbw run ... --dry-run prints its command: run that by hand")


def known(stderr_tail: str, hosts: Sequence[str] = ()) -> BusbwError | None:
    """The error for a failure that the launcher's last words tell of; None where they tell of none that is known."""
    text = " ".join(stderr_tail.replace("\0", " ").split()) + " "
    for failure in FAILURES:
        match = re.search(failure.pattern, text)
        if match:
            words = _words(match, text, hosts)
            hint = failure.hint.format_map(words)
            # Without hosts everything ran here.
            kind = StartFailed if failure.passes else NoMeasurement
            return kind(failure.message.format_map(words), hint if hosts else hint.replace(f"ssh {words['host']} ", ""))
    return None


def died(stderr: str) -> bool:
    """Whether the launcher says that a rank died of a signal, which breaks the others' connections."""
    text = " ".join(stderr.replace("\0", " ").split())
    return any(re.search(pattern, text) for pattern in (DIED, TASK_DIED))


def in_order(stderr: str, gone: Sequence[int]) -> str:
    """The launcher's last words with what srun says of ranks that died put in order: the first is the cause.

    Where a rank dies Slurm kills the others of the step, and srun may report them first; some abort by themselves. A rank that died of a
    fault is the cause; else the one that the others saw end first (`gone`). Where srun also reported its host first, others are dropped.
    """
    told = list(re.finditer(TASK_DIED, stderr))
    fault = next((one for one in told if one["why"] not in (KILLED, ABORTED)), None)
    seen = next(((one, str(rank)) for rank in gone for one in told if rank in _ranks(one["rank"])), None)
    first, rank = (fault, fault["rank"]) if fault else seen or (None, "")
    if first is None:
        return stderr
    sure = bool(fault) or first["host"] == told[0]["host"]
    rest = re.sub(TASK_DIED, "", stderr) if sure else stderr
    return f"srun: error: {first['host']}: task {rank}: {first['why']}\n{rest}"


def _ranks(words: str) -> set[int]:
    """Of srun's `0,2-3`."""
    ends = [part.partition("-") for part in words.split(",") if part]
    return {rank for first, _, last in ends for rank in range(int(first), int(last or first) + 1)}


def _named(ranks: str) -> str:
    """`rank 2`, `ranks 0,2-3`."""
    return f"ranks {ranks}" if re.search("[,-]", ranks) else f"rank {ranks}"


def _or_others(match: re.Match[str], text: str) -> str:
    """The ranks of other hosts that may have died first instead."""
    others = {one["host"]: one["rank"] for one in re.finditer(TASK_DIED, text) if one["host"] != match.groupdict().get("host")}
    words = " and ".join(f"{_named(ranks)} on host {host}" for host, ranks in others.items())
    return f", or {words} did first: Slurm kills all others of a step, and says no order" if words else ""


def aborting_host(stderr: str) -> str:
    """The host of the rank that the launcher says called MPI_Abort; '' where it says of none."""
    match = re.search(r"due to process rank \d+ with PID \d+ on node (\S+) calling", " ".join(stderr.replace("\0", " ").split()))
    return match.group(1) if match else ""


def signal_words(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    return f"signal {number} ({_signal_name(number)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _words(match: re.Match[str], text: str, hosts: Sequence[str]) -> dict[str, str]:
    named = {name: value for name, value in match.groupdict().items() if value is not None}
    remote = _REMOTE_HOST.search(text)
    words = {"host": remote.group(1) if remote else ", ".join(hosts) or "this one"} | named
    words |= {"ranks": _named(named.get("rank", "")), "or_others": _or_others(match, text)}
    words["host"] = words["host"].rpartition("@")[2].strip("[]:'\"") or words["host"]
    if "signal" in words:
        number = int(words["signal"])
        words["signal_name"] = _signal_name(number)
        template = _SIGNAL_HINTS.get(number, "ulimit -c unlimited, run again, and read the core file on {host}")
        words["signal_hint"] = template.format_map(words)
    return words
