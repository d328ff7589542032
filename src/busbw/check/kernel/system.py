"""Services of the operating system: logind, the clock and packet filters."""

import json
from collections.abc import Iterator

from busbw.check.base import broken, check, judged, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.firewall import COMMAND, Chain, closed_chains, ruleset
from busbw.host.os_queries import clock
from busbw.host.settings import logind_setting

CONF = "/etc/systemd/logind.conf"
DROP_INS = f"{CONF}.d"
OFF_WORDS = ("no", "false", "0", "off")

REMOVEIPC = CheckRow(
    id="BW114",
    name="kernel-removeipc",
    layer=Layer.KERNEL,
    title="removal of shared memory at logout",
    right="RemoveIPC=no in systemd's logind",
    why=(
        "mpirun and Slurm run jobs of users who are not logged in. With RemoveIPC=yes systemd "
        "deletes their files in /dev/shm, and NCCL crashes."
    ),
    fix=(
        f"mkdir -p {DROP_INS}; printf '[Login]\\nRemoveIPC=no\\n' > {DROP_INS}/ipc.conf; systemctl"
        " restart systemd-logind"
    ),
    stays="survives a reboot",
    reads=(CONF, f"{DROP_INS}/*.conf"),
    sources=("NCCL user guide, troubleshooting: shared memory", "systemd, logind.conf(5)"),
)
MODULES, CALL = "/proc/modules", "nft ruleset"
TABLES, LEGACY = "nf_tables", "iptable_filter"


@check(REMOVEIPC)
def check_removeipc(machine: Machine) -> Iterator[Finding]:
    """The configured value, or else the default, which the installed file has in a comment."""
    if machine.container or not machine.names("/run/systemd"):
        yield skipped(
            "a container has no logind" if machine.container else "systemd does not run here"
        )
        return
    paths = [
        CONF,
        *(f"{DROP_INS}/{name}" for name in machine.names(DROP_INS) if name.endswith(".conf")),
    ]
    texts = [machine.text(path) or "" for path in paths]
    value = logind_setting([text for text in texts if text], "RemoveIPC")
    if broken(machine.read(CONF)):
        yield unread("", machine.read(CONF), "the configuration of logind")
        return
    if value is None:
        yield not_offered(
            "",
            f"{CONF} has no RemoveIPC, and the default differs between distributions",
            fix=REMOVEIPC.fix,
        )
        return
    yield judged(
        right=value.lower() in OFF_WORDS,
        subject="",
        good="systemd keeps shared memory",
        bad="systemd removes a user's shared memory at the last logout, even while jobs use it",
        evidence=(Evidence(", ".join(paths), f"RemoveIPC={value}", "RemoveIPC=no"),),
        fix=REMOVEIPC.fix,
    )


TIME_SYNC = CheckRow(
    id="BW121",
    name="kernel-time-sync",
    layer=Layer.KERNEL,
    title="clock synchronization",
    right="a time service keeps the clock synchronized",
    why=(
        "Logs and traces of several hosts are ordered by their clocks, which should agree to within"
        " a millisecond."
    ),
    fix=(
        "drain the host, as the clock may jump; systemctl enable --now chronyd || systemctl enable"
        " --now systemd-timesyncd"
    ),
    stays="survives a reboot",
    reads=("adjtimex(2)",),
    sources=("adjtimex(2): STA_UNSYNC",),
)


@check(TIME_SYNC)
def check_time_sync(machine: Machine) -> Iterator[Finding]:
    """Whether the kernel's clock is synchronized."""
    reading = machine.call("clock", clock)
    if reading.text is None:
        yield unread("", reading, "the state of the clock")
        return
    state = json.loads(reading.text)
    yield judged(
        right=state["synchronized"],
        subject="",
        good=f"the clock is synchronized, with an estimated error of {state['error_us']} us",
        bad="no time service synchronizes the clock",
        evidence=(
            Evidence(
                "adjtimex(2)",
                "synchronized" if state["synchronized"] else "STA_UNSYNC",
                "synchronized",
            ),
        ),
        fix=(
            f"on the host of the container: {TIME_SYNC.fix}" if machine.container else TIME_SYNC.fix
        ),
    )


FIREWALL = CheckRow(
    id="BW122",
    name="firewall",
    layer=Layer.KERNEL,
    title="packet filters for incoming connections",
    right="no filter drops what other hosts of the cluster send",
    why=(
        "MPI, NCCL and PyTorch listen on ports that the kernel assigns. If those are blocked, a job"
        " hangs at startup without a message."
    ),
    fix="with CIDR the network of the cluster: nft insert rule {place} ip saddr CIDR accept",
    stays=(
        "after reboot: lost; permanent with firewall-cmd --permanent --zone=trusted"
        " --add-source=CIDR, or with ufw allow from CIDR"
    ),
    reads=(MODULES, " ".join(COMMAND)),
    sources=("nft(8)", "Open MPI issues 12508 and 13113"),
)


@check(FIREWALL)
def check_firewall(machine: Machine) -> Iterator[Finding]:
    """Chains that drop incoming packets.

    The rules are read only if nftables is loaded or built in, since reading would load it.
    """
    loaded = machine.read(MODULES)
    if loaded.text is None:
        yield unread("", loaded, "the list of modules")
        return
    if LEGACY in machine.modules:
        message = f"the module {LEGACY} is loaded; busbw does not read its rules"
        yield not_offered("", message, fix="iptables-legacy -S INPUT")
    if TABLES in machine.modules or not loaded.text:
        yield from _judge_nftables(machine)
    elif LEGACY not in machine.modules:
        yield passed(
            "", "no packet filter is loaded", Evidence(MODULES, f"neither {TABLES} nor {LEGACY}")
        )


def _judge_nftables(machine: Machine) -> Iterator[Finding]:
    reading = machine.call(CALL, ruleset)
    if reading.text is None:
        yield unread("", reading, "the rules of nftables", fix="sudo busbw check")
        return
    try:
        closed = closed_chains(reading.text)
    except ValueError as error:
        yield not_offered("", f"{' '.join(COMMAND)}: {error}")
        return
    yield from (_judge_closed(chain) for chain in closed)
    if not closed:
        yield passed(
            "", "no chain drops packets by default", Evidence(" ".join(COMMAND), "no default drop")
        )


def _judge_closed(chain: Chain) -> Finding:
    evidence = Evidence(
        " ".join(COMMAND),
        f"{chain.place} drops packets by default",
        "the cluster's network is accepted",
    )
    if chain.accepts:
        accepted = ", ".join(chain.accepts)
        message = (
            f"it accepts {accepted} and drops the rest; whether this covers the cluster is unknown"
        )
        return not_offered(
            chain.place,
            message,
            evidence,
            fix=filled(
                "compare {accepted} with the addresses of the other hosts",
                accepted=list(chain.accepts),
            ),
        )
    message = "it drops incoming connections, and accepts no whole network or interface"
    return warned(
        chain.place, message, evidence, fix=filled(FIREWALL.fix, place=chain.place.split(" "))
    )
