"""All checks of a machine, by layer, and the rules of command lines."""

from types import ModuleType

from busbw.check.base import REGISTERED, Check
from busbw.check.command import nccl_tests, ranks, srun_torchrun
from busbw.check.command import open_mpi as open_mpi_lines
from busbw.check.command import variables as line_variables
from busbw.check.command.rule import REGISTERED as REGISTERED_RULES
from busbw.check.command.rule import Rule
from busbw.check.cpu import cpus, memory
from busbw.check.expect import gpus, host, mutes, network
from busbw.check.expect import pcie as expect_pcie
from busbw.check.expect import storage as expect_storage
from busbw.check.expect.base import REGISTERED as REGISTERED_EXPECTATIONS
from busbw.check.expect.base import Expectation
from busbw.check.gpu import clocks, driver, ecc, peers, power, sharing, xid
from busbw.check.gpu import presence as gpu_presence
from busbw.check.kernel import hangs, rdma, sysctl, system
from busbw.check.kernel_log import judge
from busbw.check.launcher import hosts, open_mpi, schedulers
from busbw.check.limits import cgroup, process, storage
from busbw.check.nccl import algorithms, connections, libraries, sockets, transports, variables
from busbw.check.nccl import infiniband as nccl_infiniband
from busbw.check.nic import (
    bonds,
    cards,
    efa,
    gid,
    infiniband,
    interfaces,
    loss,
    mtu,
    optics,
    presence,
    state,
)
from busbw.check.nic import errors as nic_errors
from busbw.check.nvlink import fabric
from busbw.check.nvlink import links as nvlinks
from busbw.check.pcie import errors, files, isolation, links, nvme, packets, topology, under_load
from busbw.check.roce import consistency, pauses, qos, rdma_cm, traffic_class
from busbw.core.check_row import CheckRow
from busbw.core.errors import UsageError

# Their import registers the checks. Reports have the folders in this order.
MODULES: tuple[ModuleType, ...] = (
    gpu_presence, driver, xid, ecc, clocks, power, sharing, peers,
    nvlinks, fabric,
    links, topology, isolation, packets, errors, files, under_load, nvme,
    presence, state, infiniband, cards, interfaces, bonds, mtu, gid, nic_errors, optics, loss, efa,
    qos, rdma_cm, traffic_class, pauses, consistency,
    rdma, sysctl, system, hangs,
    judge,
    process, storage, cgroup,
    cpus, memory,
    nccl_infiniband, connections, algorithms, transports, sockets, libraries, variables,
    open_mpi, hosts, schedulers,
    ranks, open_mpi_lines, line_variables, nccl_tests, srun_torchrun,
    gpus, host, network, expect_pcie, expect_storage, mutes,
)  # fmt: skip


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


_FOLDERS = list(dict.fromkeys(_folder(module.__name__) for module in MODULES))


def _id(check: Rule | Expectation) -> str:
    return check.row.id


def _place(check: Check) -> tuple[int, str, bool, str]:
    """By folder, then by id; one that follows another check has its place."""
    folder = _FOLDERS.index(_folder(check.judge.__module__))
    return folder, check.after or check.row.id, bool(check.after), check.row.id


CHECKS: tuple[Check, ...] = tuple(sorted(REGISTERED, key=_place))
RULES: tuple[Rule, ...] = tuple(sorted(REGISTERED_RULES, key=_id))
EXPECTATIONS: tuple[Expectation, ...] = tuple(sorted(REGISTERED_EXPECTATIONS, key=_id))
OF_MACHINE: tuple[CheckRow, ...] = (
    *(check.row for check in CHECKS),
    *(expectation.row for expectation in EXPECTATIONS),
)
ROWS: tuple[CheckRow, ...] = (*OF_MACHINE, *(rule.row for rule in RULES))
BY_NAME = {key: row for row in ROWS for key in (row.id, row.name)}
BY_ROW = {check.row.id: check for check in CHECKS}


def find_row(name: str) -> CheckRow:
    """The row of the check or rule with this id or name; UsageError if there is none."""
    row = BY_NAME.get(name.upper()) or BY_NAME.get(name)
    if row is None:
        raise UsageError(f"no such check '{name}'", "busbw check --list names all")
    return row


def find(name: str) -> Check:
    """The check of a machine with this id or name; UsageError if there is none."""
    row = find_of_machine(name)
    if row.id not in BY_ROW:
        raise UsageError(
            f"{row.name} compares with a file of what a node should have",
            "busbw check --expect node.toml",
        )
    return BY_ROW[row.id]


def find_of_machine(name: str) -> CheckRow:
    """The row of a check or expectation of a machine; UsageError for others."""
    row = find_row(name)
    if row not in OF_MACHINE:
        raise UsageError(
            f"{row.name} is a check of command lines", "busbw check command -- mpirun ..."
        )
    return row
