"""Every fix is text that can be pasted: names read from the machine are quoted, whatever they
hold.
"""

import copy
import json
import re
import shlex
from functools import cache
from itertools import pairwise

import click
import pytest
from cases import CASES
from cases_nic import changed, finding_of
from healthy import healthy
from healthy_nccl import HOME, library
from looking import found
from tree import Tree, environment

from busbw.check.command.lint import lint
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, ROWS, find
from busbw.check.shell_words import word
from busbw.cli.main import cli
from busbw.core.finding import Verdict

MARK = "HARM"
HOSTILE = f"""x '$({MARK})" `id`;&|>*"""
UNSEEN = "x\x1b]0;y\x07\u202e'\\"
# a device, an interface, the host, a unit, a device file
NAMES = ("mlx5_3", "eth3", "gpu-1", "rdma-qos", "uverbs3")
BAD = {Verdict.WARN, Verdict.FAIL}


def renamed(tree: Tree, hostile: str) -> Tree:
    """The same machine, on which some names are hostile."""
    renamed_tree = Tree()
    escaped = json.dumps(hostile)[1:-1]
    for path, entry in tree.paths.items():
        renamed_tree.paths[_with(path, hostile)] = {
            key: _values(value, hostile) for key, value in entry.items()
        }
    for name, entry in tree.calls.items():
        renamed_tree.calls[_with(name, hostile)] = {
            key: _with(value, escaped) for key, value in entry.items()
        }
    return renamed_tree


def _values(value, hostile):
    return (
        [_with(item, hostile) for item in value]
        if isinstance(value, list)
        else _with(value, hostile)
    )


@cache
def _with(text: str, hostile: str) -> str:
    for name in NAMES:
        text = text.replace(name, hostile.replace("x", name.replace("-", "_"), 1))
    return text


def fixes(name: str, hostile: str) -> list[str]:
    """The fixes of a check where its fault is, on a machine with hostile names."""
    case = CASES[name]
    tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
    change(tree)
    return [
        finding.fix
        for finding in find(name).run(Machine(renamed(tree, hostile).source()))
        if finding.fix
    ]


def safe(fix: str) -> bool:
    """Whether a shell takes each hostile name in a fix as part of one word."""
    words = [word for word in shlex.split(fix) if MARK in word]
    return all(f'$({MARK})" `id`;&|>*' in word for word in words)


def test_hostile_names_are_quoted_in_every_fix():
    fixes_by_check = {check.row.name: fixes(check.row.name, HOSTILE) for check in CHECKS}
    assert {
        name: check_fixes
        for name, check_fixes in fixes_by_check.items()
        for fix in check_fixes
        if not safe(fix)
    } == {}
    assert (
        sum(
            any(f"$({MARK})" in fix for fix in check_fixes)
            for check_fixes in fixes_by_check.values()
        )
        > 25
    )


def test_names_that_a_terminal_does_not_show_are_escaped_in_every_fix():
    bad = {
        check.row.name: fix
        for check in CHECKS
        for fix in fixes(check.row.name, UNSEEN)
        if not fix.isprintable()
    }
    assert bad == {}


def test_no_comma_sticks_to_an_option_or_a_file_to_be_written():
    all_fixes = {fix for check in CHECKS for fix in [*fixes(check.row.name, "eth3"), check.row.fix]}
    shells = [fix.partition(" (")[0] for fix in all_fixes]  # what is in parentheses is prose
    words = [pair for fix in shells for pair in pairwise(shlex.split(fix))]
    assert [
        pair
        for pair in words
        if pair[1].endswith(",")
        and (pair[1].startswith("-") or pair[0] in (">", "-f", "-r", "--watch-for"))
    ] == []


@pytest.mark.parametrize(
    ("name", "change", "command"),
    [
        (
            "ssh-keys",
            lambda tree: tree.update("ssh-login", keys={f"id_{HOSTILE}": 0o644}),
            ["chmod", "600", f"~/.ssh/id_{HOSTILE}"],
        ),
        (
            "nccl-debug",
            environment(NCCL_DEBUG_FILE=HOSTILE),
            ["export", f"NCCL_DEBUG_FILE={HOSTILE}.%h.%p"],
        ),
        (
            "nccl-ib-hca",
            environment(NCCL_IB_HCA=f"=mlx5_0,{HOSTILE}"),
            ["export", "NCCL_IB_HCA==mlx5_0"],
        ),
        (
            "torch-nccl-names",
            environment(NCCL_ASYNC_ERROR_HANDLING=HOSTILE),
            ["export", f"TORCH_NCCL_ASYNC_ERROR_HANDLING={HOSTILE}"],
        ),
        (
            "hostname-loopback",
            lambda tree: tree.file("/proc/sys/kernel/hostname", "g$(id)").file(
                "/etc/hosts", "127.0.1.1 g$(id)"
            ),
            shlex.split(
                "in /etc/hosts, replace 127.0.1.1 in the line of 'g$(id)' with the address of this"
                " host"
            ),
        ),
        (
            "nccl-libraries",
            lambda tree: tree.call(
                "nccl-libraries",
                json.dumps(
                    [
                        library(f"/{HOSTILE}/libnccl.so.2", "2.27.7"),
                        library("/b/libnccl.so.2", "2.21.5"),
                    ]
                ),
            ),
            [
                "for",
                "the",
                "test:",
                "export",
                f"LD_LIBRARY_PATH=/{HOSTILE}:$LD_LIBRARY_PATH;",
                "or",
                "install",
                "the",
                "same",
                "version",
            ],
        ),
    ],
)
def test_other_names_are_words(name, change, command):
    (bad,) = [finding for finding in found(name, change) if finding.verdict in BAD]
    assert shlex.split(bad.fix) == command


def test_file_of_nccl_is_quoted():
    line = f"NCCL_ALGO={HOSTILE}"
    (bad,) = [
        finding
        for finding in found("nccl-algo", lambda tree: tree.file(f"{HOME}/.nccl.conf", line))
        if finding.verdict in BAD
    ]
    assert line in shlex.split(bad.fix)


def test_words_of_a_command_line_are_quoted():
    value = "Simple;x y'|"  # not $, which the shell that starts the line would replace
    findings = lint(
        [
            "mpirun",
            "-n",
            "2",
            "-x",
            f"NCCL_PROTO={value}",
            "./build/all_reduce_perf",
            "-b",
            "8",
            "-e",
            "8G",
        ]
    )
    (proto,) = [finding for finding in findings if finding.name == "nccl-proto"]
    assert proto.fix == f"leave out -x NCCL_PROTO={word(value)}"


class TestOnlyTheBitsThatAreMeant:
    """setpci writes VALUE:MASK, which keeps the other bits of the register."""

    @pytest.mark.parametrize("name", ["pcie-acs", "pcie-max-read-request", "pcie-relaxed-ordering"])
    def test_mask(self, name):
        case = CASES[name]
        tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
        change(tree)
        (fix,) = {
            finding.fix
            for finding in find(name).run(Machine(tree.source()))
            if finding.verdict in BAD
        }
        (register,) = [word.removesuffix(";") for word in shlex.split(fix) if ".w=" in word]
        value, _, mask = register.partition("=")[2].partition(":")
        assert int(value, 16) & ~int(mask, 16) == 0 and int(mask, 16) in (0x1D, 0x7000, 0x10)


@pytest.mark.parametrize(
    "name",
    [
        "gpu-mig",
        "gpu-ecc-mode",
        "nvlink-fabric-manager-version",
        "nic-driver",
        "nic-rate",
        "nic-flap",
        "nic-ber",
        "nic-mtu",
        "nic-mtu-equal",
        "nic-bond",
        "nic-firmware",
        "pcie-width",
        "pcie-speed",
        "pcie-acs",
        "pcie-max-read-request",
        "roce-pause-global",
        "cpu-isolated",
    ],
)
def test_fixes_that_disturb_a_job_begin_with_draining_the_host(name):
    case = CASES[name]
    tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
    change(tree)
    bad = [finding for finding in find(name).run(Machine(tree.source())) if finding.verdict in BAD]
    assert bad and all("drain the host" in finding.fix for finding in bad)


def test_fixes_name_commands_that_exist():
    fixes = [fix for row in ROWS for fix in (row.fix, row.stays)]
    named = [words for fix in fixes for words in re.findall(r"\bbusbw (\w+) ([\w-]+)", fix)]
    known = cli.list_commands(click.Context(cli))
    assert len(named) > 10 and {command for command, _ in named} <= set(known)
    checks = {row.name for row in ROWS}
    assert not [words for words in named if words[1] in checks]  # but busbw check explain NAME


class TestLoopbackName:
    def test_localhost_stays(self):
        (bad,) = found(
            "hostname-loopback",
            lambda tree: tree.file("/etc/hosts", "127.0.0.1 localhost gpu-1 localhost.localdomain"),
        )
        assert (
            bad.fix
            == "in /etc/hosts, take gpu-1 out of the line of 127.0.0.1, which keeps localhost"
            " localhost.localdomain; add a line with the address of this host and gpu-1"
        )

    def test_host_that_is_called_localhost(self):
        name = lambda tree: tree.file("/proc/sys/kernel/hostname", "localhost.localdomain")  # noqa: E731
        (only,) = found(
            "hostname-loopback",
            name,
            lambda tree: tree.file("/etc/hosts", "127.0.0.1 localhost localhost.localdomain"),
        )
        assert only.verdict is Verdict.SKIP


@pytest.mark.parametrize(
    "driver", ["vfio-pci", "nvgrace-gpu-vfio-pci", "mlx5_vfio_pci", "pci-stub"]
)
def test_acs_is_not_judged_on_a_host_of_virtual_machines(driver):
    case = CASES["pcie-acs"]
    tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
    change(tree)
    tree.link("/sys/bus/pci/devices/0000:31:00.0/driver", f"../../../bus/pci/drivers/{driver}")
    assert {finding.verdict for finding in find("pcie-acs").run(Machine(tree.source()))} == {
        Verdict.SKIP
    }


def test_reserving_huge_pages_never_takes_any_away():
    tree, _ = copy.deepcopy(CASES["mem-hugepages"])
    tree.file("/proc/meminfo", "HugePages_Total: 20000\nHugePages_Free: 0")
    (bad,) = find("mem-hugepages").run(Machine(tree.source()))
    assert bad.fix == "sysctl -w vm.nr_hugepages=25120"


def test_pfc_of_a_port_that_drops_packets_is_a_whole_command():
    bad = finding_of(
        "nic-discards", changed(lambda tree: tree.update("ethtool -S eth3", rx_discards_phy=10**6))
    )
    assert "mlnx_qos -i eth3 --pfc 0,0,0,1,0,0,0,0" in bad.fix
