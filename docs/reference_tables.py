"""Reference pages made from the tables of collectives, types, engines, views, exit codes,
variables, launchers and hardware.
"""

import inspect
from fractions import Fraction
from string import Formatter

from markdown_table import code, table

from busbw.cli.commands import commands as all_commands
from busbw.cli.exit_codes import rows_of as exit_codes_of
from busbw.core.collectives import BY_NAME, COLLECTIVES, Collective
from busbw.core.dtypes import DTYPES
from busbw.core.env import VARIABLES
from busbw.core.errors import Exit, NagiosExit, NcclTestsExit
from busbw.core.finding import Verdict, exit_of
from busbw.core.options import BY_FIELD
from busbw.core.redops import REDOPS
from busbw.core.topology import Gpu, Host, Nic
from busbw.engines.registry import AUTOMATIC, ENGINES
from busbw.engines.sim_parameters import PARAMETERS, value_text
from busbw.launch.environment import LAUNCHERS
from busbw.launch.failures import FAILURES
from busbw.model.bounds import ALGORITHMS, Features, bounds
from busbw.model.fabric import Fabric, fabric
from busbw.model.hardware import generations
from busbw.report.registry import VIEWS

_WORDS = {
    "signal_name": "its name",
    "signal_hint": "what that signal usually means, and where to look",
}
_UNITS = {
    (1, 1, 1): "count x size",
    (2, 3, 8): "count x n x size",
    (1, 2, 7): "count x (n-1) x size",
}


def collectives() -> str:
    """Formulas, buffers, results and in-place rules."""
    figures = [
        (code(row.name), _algbw(row), row.formula, _factor(row, 2), _factor(row, 8), _names(row))
        for row in COLLECTIVES
    ]
    data = [
        (
            code(row.name),
            _doc(row.buffers),
            _doc(row.moves),
            row.in_place.value if row.in_place_checked else "timed, not checked",
            _properties(row),
        )
        for row in COLLECTIVES
    ]
    return (
        "`n` is the number of ranks, `count` the count argument of the call in elements, `size`"
        " the bytes of one element. busbw = algbw x bus factor.\n\n"
        "Parts of a buffer (all_gather, reduce_scatter, alltoall, alltoallv, gather, scatter,"
        " hypercube) are cut to a multiple of 16 bytes, as in nccl-tests: sizes below 16 n bytes"
        " move nothing.\n\n"
        + table(
            ("collective", "bytes of algbw", "bus factor", "2 ranks", "8 ranks", "other names"),
            figures,
        )
        + "For alltoallv, the bytes of algbw are the largest total that any rank sends or receives,"
        " with what it sends to itself. So busbw describes the busiest rank, and is exact where"
        " it sends 1/n of its bytes to itself; `ideal` is computed from the exact matrix, in the"
        " same unit. `traffic` in the result has the bytes without what ranks send to"
        " themselves.\n\n## Data\n\n`c` is the requested size in elements. The fourth column"
        " shows how the buffers share memory in place.\n\n"
        + table(("collective", "buffers", "result", "in place", "properties"), data)
    )


def _algbw(row: Collective) -> str:
    if row.uneven:
        return "largest total of a rank"
    multiples = tuple(map(row.algbw_multiple, (2, 3, 8)))
    return _UNITS.get(multiples, f"count x size x {multiples} for 2, 3 and 8 ranks")


def _properties(row: Collective) -> str:
    known = (
        ("reduces", row.reduces),
        ("root", row.rooted),
        ("ranks: a power of two", row.ranks_power_of_two),
    )
    return ", ".join(word for word, holds in known if holds)


def _factor(row: Collective, ranks: int) -> Fraction:
    return row.bus_factor(ranks)


def _names(row: Collective) -> str:
    return ", ".join(
        dict.fromkeys(
            code(name) for name in (row.title, row.torch_name, *row.aliases) if name != row.name
        )
    )


def _doc(function: object) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def types_and_operators() -> str:
    """Element types, then operators."""
    types = [
        (
            code(row.name),
            row.itemsize,
            row.kind,
            code(row.torch),
            ", ".join(map(code, row.aliases)),
            row.significand or "",
            _needs(row),
        )
        for row in DTYPES
    ]
    operators = [(code(row.name), row.meaning, ", ".join(map(code, row.aliases))) for row in REDOPS]
    return (
        "`--datatype all` runs every type in this order, `--op all` every operator.\n\n"
        + table(
            (
                "type",
                "bytes",
                "kind",
                "PyTorch",
                "other names",
                "bits of significand",
                "needs on GPUs",
            ),
            types,
        )
        + "## Operators\n\n"
        + table(("operator", "meaning", "other names"), operators)
    )


def _needs(row: object) -> str:
    nccl, sm = getattr(row, "min_nccl", 0), getattr(row, "min_sm", 0)
    return (
        f"NCCL {nccl // 10000}.{nccl // 100 % 100}, compute capability {sm // 10}.{sm % 10}"
        if nccl
        else ""
    )


def engines() -> str:
    """Engines, and the parameters of sim."""
    rows = [
        (
            code(row.name),
            row.help,
            code(row.install),
            ", ".join(code(f"-{BY_FIELD[one].short}") for one in row.ignores),
        )
        for row in ENGINES
    ]
    parameters = [
        (code(name), value_text(known.default), known.allowed, known.meaning)
        for name, known in PARAMETERS.items()
    ]
    return (
        f"`--engine auto` takes the first of {', '.join(map(code, AUTOMATIC))} that can run; the"
        " others must be named. On a machine with NVIDIA GPUs that none of the first two reaches,"
        " `auto` is an error. `busbw check engines` lists which can run on this machine.\n\n"
        + table(("engine", "what it measures", "install", "options it does not use"), rows)
        + "## Parameters of sim\n\n`--sim NAME=VALUE,...`: the same seed gives the same run.\n\n"
        + table(("parameter", "default", "range", "meaning"), parameters)
    )


def views() -> str:
    """Views."""
    rows = [
        (code(row.name), row.help, "row by row" if row.streams else "at the end") for row in VIEWS
    ]
    return (
        "`--format NAME`, in `busbw run` and `busbw show`. With `--engine torch`, `busbw run"
        " --format csv` means `torch-csv`.\n\n" + table(("view", "description", "output"), rows)
    )


def exit_codes() -> str:
    """All tables of exit codes."""
    own, compat = ([(int(row), row.meaning) for row in codes] for codes in (Exit, NcclTestsExit))
    nagios = [(int(row), row.name, row.meaning) for row in NagiosExit]
    verdicts = [
        (
            verdict.value.upper(),
            *(int(exit_of([verdict], fail_on)) for fail_on in (Verdict.FAIL, Verdict.WARN)),
        )
        for verdict in Verdict
    ]
    packages = dict.fromkeys(row.package for row in all_commands())
    exits = [row for package in packages for row in exit_codes_of(package)]
    commands = [
        (code(row.command), row.bad, row.unknown, "yes" if row.warns else "") for row in exits
    ]
    unlike = [f"* `{row.command}`: {row.unlike}.\n" for row in exits if row.unlike]
    return (
        table(("code", "meaning"), own)
        + "## Verdicts\n\nThe worst verdict of a command gives its exit code: FAIL, else UNKNOWN,"
        " else WARN.\n\n"
        + table(("verdict", "exit code", "with `--fail-on warn`"), verdicts)
        + "## Commands\n\nWhen each command ends with 1 and with 3. Any command also ends with 3"
        " if it could measure or read nothing, and with 2, 4 or 130. Those that are not here give"
        " no verdict.\n\n"
        + table(("command", "1", "3", "has `--fail-on`"), commands)
        + "Where a command differs from the rule:\n\n"
        + "".join(unlike)
        + "\n## The line for a monitor\n\nThese are the codes of `busbw check --nagios`.\n\n"
        + table(("code", "word", "meaning"), nagios)
        + "## The compat frontend\n\nThese are the codes of nccl-tests.\n\n"
        + table(("code", "meaning"), compat)
    )


def environment() -> str:
    """Variables that busbw reads."""
    rows = [(code(row.name), row.meaning, row.owner) for row in VARIABLES]
    return (
        "Those of settings are defaults of options; [settings](settings.md) has their order. NCCL,"
        " PyTorch and MPI also read their own variables. A result contains those that concern"
        " communication; values that look like secrets are masked.\n\n"
        + table(("variable", "meaning", "defined by"), rows)
    )


def launchers() -> str:
    """How a rank detects its launcher."""
    rows = [
        (
            row.name,
            code(row.rank),
            ", ".join(map(code, row.size)),
            ", ".join(map(code, row.local_rank)),
            ", ".join(map(code, row.requires)),
            "MPI" if row.mpi else "PyTorch's store",
        )
        for row in LAUNCHERS
    ]
    return (
        "A process with the variables of one of these rows is a rank of a running job; the first"
        " matching row is used. A Slurm step of one task, and a shell of salloc or sbatch, do not"
        " count as ranks.\n\n"
        + table(
            ("launcher", "rank", "number of ranks", "local rank", "also required", "rendezvous"),
            rows,
        )
    )


def launch_failures() -> str:
    """Known failures and their messages."""
    rows = [(code(row.pattern), _plain(row.message), _plain(row.hint)) for row in FAILURES]
    return (
        "After a failure, the end of the launcher's output is searched for these patterns (Python"
        " regular expressions); the first match wins. HOST and similar names are filled from the"
        " match.\n\n" + table(("pattern", "message", "hint"), rows)
    )


def _plain(template: str) -> str:
    return "".join(
        text + _WORDS.get(field or "", (field or "").upper())
        for text, field, _, _ in Formatter().parse(template)
    )


def ideal() -> str:
    """Algorithms, an example, and the constants of GPUs."""
    algorithms = [(row.name, ", ".join(map(code, row.collectives)), row.why) for row in ALGORITHMS]
    names = list(dict.fromkeys(row.name for row in ALGORITHMS if "all_reduce" in row.collectives))
    hosts = (1, 2, 4, 16)
    example = [(name, *(_bound(name, count) for count in hosts)) for name in names]
    gpus = [
        (
            ", ".join(row.names),
            row.links,
            _gb(row.link_rate),
            _gb(row.links * row.link_rate),
            _gb(row.links * row.planned),
            row.source,
        )
        for row in generations()
    ]
    return (
        "`ideal` is the largest bound of the algorithms that can run. `--ideal 450GB/s` replaces"
        " it. "
        "[How to read it](../explanation/how-to-read-busbw.md).\n\n"
        + table(("algorithm", "collectives", "derivation of the bound"), algorithms)
        + "## Example\n\nBounds of all_reduce in GB/s for hosts of 8 GPUs with 450 GB/s of NVLink"
        " each and 8 ports of 400 Gbit/s, with NVLS and without reduction in the network:\n\n"
        + table(
            ("algorithm", *(f"{count} host{'s' if count > 1 else ''}" for count in hosts)),
            [row for row in example if any(row[1:])],
        )
        + "## GPUs\n\nGB/s in one direction; the link rate is read from the machine; NCCL plans"
        " with its own constant.\n\n"
        + table(("GPU", "links", "per link", "all links", "NCCL plans with", "source"), gpus)
    )


def _gb(rate: float) -> str:
    return f"{rate / 1e9:g}"


def _bound(name: str, hosts: int) -> str:
    gpus = [
        Gpu(
            i,
            "NVIDIA H100",
            f"0000:{i:02x}:00.0",
            nvlink=18,
            nvlink_rate=25e9,
            pcie=63e9,
            sm=90,
            nvls=True,
        )
        for i in range(8)
    ]
    nics = [Nic(f"mlx5_{i}", "ib", 50e9) for i in range(8)]
    links = fabric(
        [Host(f"h{number}", gpus=gpus, nics=nics) for number in range(hosts)], [8] * hosts
    )
    assert isinstance(links, Fabric)
    found = {
        bound.algorithm: bound.busbw
        for bound in bounds(BY_NAME["all_reduce"], links, Features(nvls=True))
    }
    return f"{found[name] / 1e9:.4g}" if name in found else ""
