"""Command lines of launchers: how they are parsed, and what the rules find in them."""

import re
import shlex

import pytest
from cases_command import ALONE, ON_A_MACHINE
from command_lines import PERF, machine
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.check.command.line import CommandLine, inner
from busbw.check.command.lint import lint
from busbw.check.command.nccl_tests import perf
from busbw.check.command.options import OPTIONS_WITH_ONE_VALUE, OPTIONS_WITH_TWO_VALUES
from busbw.check.command.parse_line import parse
from busbw.check.nccl.algorithms import TUNING_DEFAULTS
from busbw.check.nccl.variables import known_names
from busbw.check.registry import MODULES, ROWS, RULES, find, find_row
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict

BAD = {Verdict.WARN, Verdict.FAIL}
# The lines of three published reports, as their readers would copy them.
OCI = """mpirun --allow-run-as-root -n 16 -H inst-x:8,inst-y:8 -mca plm_rsh_args "-p 22222" --mca btl_tcp_if_exclude docker0,lo
--bind-to numa -x NCCL_CUMEM_ENABLE=0 -x NCCL_IB_SPLIT_DATA_ON_QPS=0 -x NCCL_IB_GID_INDEX=3 -x NCCL_IB_TC=41 -x NCCL_NET_PLUGIN=none
-x NCCL_IGNORE_CPU_AFFINITY=1 -x NCCL_SOCKET_IFNAME=eth0 -x UCX_NET_DEVICES=eth0 -x NCCL_IB_HCA="=mlx5_0,mlx5_1,mlx5_3,mlx5_4"
./build/all_reduce_perf -b 1G -e 16G -f 2"""
H20_HELLO = """mpirun -v --allow-run-as-root --prefix /usr/local/openmpi --mca btl_tcp_if_include bond1 --mca oob_tcp_if_include bond1 -np 2
--host 10.1.1.1:1,10.1.1.2:1 bash -c 'echo "Hello from $OMPI_COMM_WORLD_RANK on $(hostname)"'"""
H20 = """mpirun -v --allow-run-as-root --prefix /usr/local/openmpi --mca btl_tcp_if_include bond1 --mca oob_tcp_if_include bond1
-x NCCL_SOCKET_IFNAME=bond1 -x NCCL_IB_DISABLE=0 -x NCCL_IB_GID_INDEX=3 -x NCCL_IB_HCA=mlx5_ -x NCCL_NET_GDR_LEVEL=2 -x NCCL_DEBUG=INFO
-x LD_LIBRARY_PATH=/usr/local/openmpi/lib -np 16 --host 10.1.1.1:8,10.1.1.2:8 ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1 -n 50"""
SCCGN = """mpirun --allow-run-as-root -np 16 -npernode 8 -H {host1}:{host2} --bind-to none -mca btl_tcp_if_include bond0 -x PATH
-x CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 -x NCCL_SOCKET_IFNAME=bond0 -x NCCL_IB_HCA=mlx5 -x NCCL_IB_DISABLE=0 -x NCCL_DEBUG=INFO
-x NCCL_NSOCKS_PERTHREAD=8 -x NCCL_SOCKET_NTHREADS=8 -x NCCL_IB_GID_INDEX=3 -x NCCL_DEBUG_SUBSYS=NET,GRAPH
-x NCCL_IB_QPS_PER_CONNECTION=4 ./build/all_reduce_perf -b 4M -e 4M -f 2 -g 1 -t 1 -n 20"""


def bad_rules(text, on=None):
    """Findings that are bad, by name."""
    return {
        finding.name: finding for finding in lint(shlex.split(text), on) if finding.verdict in BAD
    }


def rule(name, text, on=None):
    (finding,) = [finding for finding in lint(shlex.split(text), on) if finding.name == name]
    return finding


# Published lines


def test_line_with_the_daemons_interface_left_open():
    bad = bad_rules(OCI, machine("4.1.7", ["eth0"], host="inst-x"))
    # the server's ports send with 106
    assert set(bad) == {"line-interfaces", "nccl-gid-index", "nccl-ib-tc"}
    assert bad["line-interfaces"].fix == "add --mca oob_tcp_if_exclude docker0,lo"
    assert bad["nccl-gid-index"].fix == "leave out -x NCCL_IB_GID_INDEX=3"
    assert bad["nccl-ib-tc"].message.startswith("NCCL_IB_TC is 41 (DSCP 10, ECT(1))")


def test_line_of_open_mpi_4_with_ssh_options_under_5():
    bad = bad_rules(OCI, machine("5.0.8", ["eth0"]))
    assert "line-mpi-version" not in bad  # mpirun 5.0.8 and 5.0.11 give the agent -p 22222
    # they crash with a list to exclude
    assert bad["line-interfaces"].fix.startswith("add --prtemca prte_if_include SUBNET")
    # and ignore this
    assert "line-mpi-version" in bad_rules(
        OCI.replace("-mca plm", "--prtemca plm"), machine("5.0.8")
    )


@pytest.mark.parametrize("version", ["4.1.8", "5.0.8"])
def test_line_with_both_interfaces_has_no_fault(version):
    assert bad_rules(H20_HELLO, machine(version, ["bond1"])) == {}
    assert (
        bad_rules(H20_HELLO, machine(version))["line-interfaces"].message
        == "--mca oob_tcp_if_include bond1: this host has no such interface"
    )


def test_line_with_leftovers_of_tests():
    expected = {"nccl-gid-index", "nccl-net-gdr-level"}
    assert set(bad_rules(H20, machine("4.1.8", ["bond1"], host="10.1.1.1"))) == expected
    # without the machine, mlx5_ may be any port
    assert set(bad_rules(H20)) == {*expected, "nccl-ib-hca"}


def test_line_with_a_colon_between_hosts():
    bad = bad_rules(SCCGN, machine("4.1.3", ["bond0"]))
    assert set(bad) == {
        "line-hosts",
        "line-interfaces",
        "line-sizes",
        "nccl-gid-index",
        "nccl-ib-hca",
    }
    assert bad["line-hosts"].verdict is Verdict.FAIL
    assert bad["line-hosts"].fix == "-H '{host1}:8,{host2}:8'"
    assert bad["line-interfaces"].fix == "add --mca oob_tcp_if_include bond0"
    assert "latency" in bad["line-sizes"].message


# Rules


def test_rule_without_a_machine():
    for name, line, verdict in ALONE:
        finding = rule(name, line)
        assert finding.verdict is verdict, (line, finding)
        if verdict in BAD:
            assert finding.message and finding.evidence and finding.fix, (line, finding)


def test_rule_with_a_machine():
    for name, line, on, verdict in ON_A_MACHINE:
        finding = rule(name, line, on)
        assert finding.verdict is verdict, (line, finding)


def test_every_rule_fires_in_a_case():
    fired = {name for name, *_, verdict in (*ALONE, *ON_A_MACHINE) if verdict in BAD}
    assert fired == {check.row.name for check in RULES}


def test_ranks_that_fill_the_first_host():
    finding = rule("line-spread", f"mpirun -n 8 -H h1:8,h2:8 {PERF}")
    assert finding.message == "ranks by host: h1: 8, h2: 0"
    assert finding.fix == "-n 8 -H h1:4,h2:4"


# NCCL's variables on the line


def test_two_variables_of_a_fix_are_two_options():
    bad = bad_rules(f"mpirun -x NCCL_SOCKET_NTHREADS=16 -x NCCL_NSOCKS_PERTHREAD=16 {PERF}")
    assert bad["nccl-socket-threads"].fix == "-x NCCL_SOCKET_NTHREADS=4 -x NCCL_NSOCKS_PERTHREAD=4"


def test_guessed_name_of_a_variable_gets_no_value():
    bad = bad_rules(f"mpirun -n 8 -x NCCL_IB_QPS=2 {PERF}")["nccl-names"]
    assert bad.message.endswith("the closest name is NCCL_IB_QPS_PER_CONNECTION")
    assert bad.fix == "leave out -x NCCL_IB_QPS=2"


def test_variables_of_the_machine_are_not_the_lines():
    assert "nccl-algo" not in bad_rules(
        f"mpirun --allow-run-as-root -n 8 {PERF}", machine(NCCL_ALGO="Ring")
    )
    assert "nccl-algo" not in bad_rules(f"mpirun -x NCCL_ALGO=$ALGO {PERF}")
    assert "nccl-algo" in bad_rules(
        f"mpirun --allow-run-as-root -n 8 -x NCCL_ALGO=Ring {PERF}", machine()
    )


@pytest.mark.parametrize(
    "start", ["NCCL_ALGO=Ring", "env NCCL_ALGO=Ring", "timeout 60 env NCCL_ALGO=Ring"]
)
def test_variables_before_the_program(start):
    for program in (PERF, f"srun --mpi=pmix {PERF}", "torchrun train.py"):
        assert ("nccl-algo" in bad_rules(f"{start} {program}")) or (
            start.startswith("timeout") and program == PERF
        )


def test_masked_values_stay_masked():
    assert "hunter2" not in str(lint(shlex.split(f"mpirun -x NCCL_API_TOKEN=hunter2 {PERF}")))


# Parsing


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("mpirun -np 2 -x A=1 --mca a b -H h1 hostname -f", ("hostname", "-f")),
        ("mpirun --host=h1 --map-by ppr:8:node --tag-output prog -n 3", ("prog", "-n", "3")),
        ("srun -N2 -n16 --gpus-per-node=8 -l --container-image img prog -n 3", ("prog", "-n", "3")),
        ("srun --container-mount-home --container-mounts a:b --mpi=pmix prog", ("prog",)),
        ("srun --mpi=pmix -- prog", ("prog",)),
        (
            "torchrun --nnodes 2 --nproc_per_node 8 -m pkg.train --lr 1",
            ("-m", "pkg.train", "--lr", "1"),
        ),
        ("timeout 60 mpirun -n 2 prog", ("prog",)),
        ("mpiexec.hydra -genv NCCL_DEBUG WARN -hosts h1,h2 -ppn 8 prog -n 3", ("prog", "-n", "3")),
        ("mpirun -ppn 8 -hosts h1,h2 -n 16 prog", ("prog",)),
        ("A=1 prog -x", ("prog", "-x")),
        ("mpirun $ARGS -np 16 -H h1 prog -g 8", ("prog", "-g", "8")),
        ("mpirun $A -np 16 $B -H h1 prog -g 8", ("prog", "-g", "8")),
        ("mpirun $A -np 16 $PROG -b 8", ("$PROG", "-b", "8")),
        (f"mpirun {'$A --oversubscribe ' * 999} prog", ("prog",)),
        ("mpirun -np 16 $PROG -b 8 -e 8G -f 2", ("$PROG", "-b", "8", "-e", "8G", "-f", "2")),
        ("srun $PROG -b 8 -e 8G -f 2", ("$PROG", "-b", "8", "-e", "8G", "-f", "2")),
        ("srun $PROG -b 8 -n 20", ("$PROG", "-b", "8", "-n", "20")),
    ],
)
def test_program_behind_the_options(line, program):
    assert parse(shlex.split(line)).program == program


def test_line_of_one_rank_is_in_the_singular():
    bad = bad_rules("mpirun -n 1 ./all_reduce_perf -b 1G -e 1G -g 8")
    assert bad["line-binding"].message == "1 rank without --bind-to is bound to one core"


def test_numbers_of_a_line():
    line = parse(shlex.split("mpirun -npernode 8 -H h1,h2 prog"))
    assert (line.nodes, line.per_node, line.ranks, line.ranks_per_node) == (2, 8, 16, 8)
    line = parse(shlex.split("srun --nodes=4 --ntasks 32 prog"))
    assert (line.nodes, line.per_node, line.ranks, line.ranks_per_node) == (4, None, 32, 8)
    line = parse(shlex.split("torchrun --nproc-per-node=gpu prog"))
    assert (line.nodes, line.per_node, line.ranks) == (1, None, None)


def test_program_inside_a_shell():
    assert inner(("bash", "-c", "source env.sh && ./all_reduce_perf -g 8")) == (
        "./all_reduce_perf",
        "-g",
        "8",
    )
    assert inner(("bash", "-lc", "cd x; prog")) == ("prog",)
    assert inner(("bash", "-c", "echo 'open")) == ("bash", "-c", "echo 'open")
    tests = perf(
        CommandLine(
            (),
            program=("bash", "-c", "x && ./build/sendrecv_perf -b 1M --maxbytes 2M -i 1M -g2 -t 3"),
        )
    )
    assert (tests.min_bytes, tests.max_bytes, tests.stepped, tests.devices) == (
        1 << 20,
        2 << 20,
        True,
        6,
    )


@pytest.mark.parametrize(
    ("hosts", "fixed"),
    [
        ("h1:8:h2:8", "h1:8,h2:8"),
        ("h1:h2 -N 4", "h1:4,h2:4"),
        ("h1:8,h2:h3:4", "h1:8,h2,h3:4"),
        ("10.1.1.1:10.1.1.2", "10.1.1.1,10.1.1.2"),
        ("[fd00::1]:8,h2:h3", "'[fd00::1]:8,h2,h3'"),
    ],
)
def test_hosts_keep_their_slots(hosts, fixed):
    assert rule("line-hosts", f"mpirun -n 8 -H {hosts} {PERF}").fix == f"-H {fixed}"


def test_invalid_sizes_are_not_judged():
    assert perf(CommandLine((), program=("all_reduce_perf", "-b", "$SIZE"))) is None


WORDS = [
    *(f"-{name}" for names in OPTIONS_WITH_ONE_VALUE.values() for name in names),
    *(f"--{name}" for name in OPTIONS_WITH_TWO_VALUES["mpirun"] | OPTIONS_WITH_TWO_VALUES["hydra"]),
    "mpirun",
    "srun",
    "torchrun",
    "h1:h2",
    "all_reduce_perf",
    "-g",
    "8",
    "-b",
    "NCCL_ALGO=Ring",
    "[fd00::1",
    "--",
    "-",
    "bash",
    "-c",
    "",
    "=",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=8), min_size=1, max_size=12))
def test_any_line_gets_a_finding_of_each_rule(argv):
    names = {finding.name for finding in lint(argv)}
    assert {check.row.name for check in RULES} <= names


def test_empty_line_is_an_error():
    with pytest.raises(UsageError):
        lint([])


# Tables


def test_rules_have_ids_of_their_own():
    assert len({row.id for row in ROWS}) == len({row.name for row in ROWS}) == len(ROWS)
    for row in (check.row for check in RULES):
        assert "BW220" <= row.id <= "BW239" and row.name.startswith("line-")
        assert find_row(row.name) is find_row(row.id) is row
        assert all((row.title, row.right, row.why, row.fix, row.stays, row.reads, row.sources))


def test_variables_that_checks_judge_are_known():
    modules = [module for module in MODULES if module.__name__.startswith("busbw.check.nccl.")]
    constants = {
        value for module in modules for value in vars(module).values() if isinstance(value, str)
    }
    judged = {value for value in constants if re.fullmatch("NCCL_[A-Z0-9_]+", value)} | set(
        TUNING_DEFAULTS
    )
    assert len(judged) > 40
    assert judged <= known_names()


def test_rule_is_not_a_check_of_a_machine():
    with pytest.raises(UsageError, match="line-hosts is a check of command lines"):
        find("line-hosts")
