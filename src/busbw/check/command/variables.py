"""Variables of a line that do not reach the ranks, that are given twice, or that are not ASCII."""

import re
from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.line import EXPORTS, STAYS, Line, rule, unset
from busbw.check.command.nccl_tests import perf
from busbw.check.shell_words import assignment, filled, word
from busbw.check.types import Evidence, Found
from busbw.core.env import shown
from busbw.core.finding import CheckRow, Layer
from busbw.core.masking import MASK

_DEVICE = re.compile(r"\^?[a-z]+\d*_?\d+(:\d+)?")  # mlx5_1, bond0
_FORWARDED = ("OMPI_", "PRTE_", "PMIX_")  # Open MPI forwards these itself

EXPORT = CheckRow(
    id="BW223",
    name="line-export",
    layer=Layer.LAUNCHER,
    title="variables that the line exports to ranks",
    right="mpirun -x for each; srun --export with ALL",
    why=(
        "mpirun passes a variable of its shell only to ranks on its own host. Ranks on other hosts"
        " need -x. -x NAME passes nothing if the shell did not export NAME. srun --export=NAME"
        " without ALL removes all other variables from the ranks. Its commas separate variables,"
        " not values."
    ),
    fix="-x {name}=VALUE",
    stays=STAYS,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, mpirun, -x", "srun(1), --export"),
)


@rule(EXPORT)
def check_export(line: Line) -> Iterator[Found]:
    """Names without a value, those in front of mpirun, and srun's --export."""
    found = (
        list(_judge_srun(line))
        if line.launcher == "srun"
        else [*_judge_before_mpirun(line), *_judge_without_value(line)]
    )
    yield from found
    if not line.variables and not found:
        yield skipped("the line exports no variable")
    elif not found:
        yield passed("", f"{len(line.variables)} variables")


def _judge_srun(line: Line) -> Iterator[Found]:
    export = line.value("export")
    if export is None:
        return
    words = export.split(",")
    named = [word for word in words if word not in EXPORTS]
    split = [word for word in words if _DEVICE.fullmatch(word)] if "=" in export else []
    if split:
        message = (
            f"--export reads {', '.join(split)} as variable names: a comma ends the value before it"
        )
        yield warned(
            "",
            message,
            Evidence("--export", export),
            fix="export the variable before srun, and leave out --export",
        )
    elif "ALL" not in words:
        message = f"--export={export} removes all other variables from the ranks"
        fix = word(f"--export={','.join(['ALL', *named])}")
        yield warned("", message, Evidence("--export", export, "ALL,..."), fix=fix)


def _judge_before_mpirun(line: Line) -> Iterator[Found]:
    options = {name for name, _ in line.passed}
    alone = [
        name for name, _ in line.before if name not in options and not name.startswith(_FORWARDED)
    ]
    if line.launcher == "mpirun" and line.several and not line.allocated and alone:
        named = ", ".join(alone)
        message = f"{named} in front of mpirun reaches only the ranks on this host"
        yield warned(
            "",
            message,
            Evidence("before mpirun", named, "-x"),
            fix=" ".join(f"-x {word(name)}" for name in alone),
        )


def _judge_without_value(line: Line) -> Iterator[Found]:
    have = {name for name, _ in line.before} | set(line.environment or {})
    bare = [
        name
        for name, value in line.passed
        if value is None and name not in have and shown(name, "x") != MASK
    ]
    if bare and line.environment is None:
        named = ", ".join(bare)
        yield unknown(
            "",
            f"whether {named} has a value is unknown",
            Evidence("-x", named, "a value in the environment"),
        )
        return
    for name in bare:
        message = f"-x {name}, but the environment has no {name}"
        yield warned(
            "",
            message,
            Evidence(f"${name}", "not set", "a value"),
            fix=filled("-x {name}=VALUE, or export {name} before", name=name),
        )


VARIABLE = "CUDA_VISIBLE_DEVICES"

VISIBLE_DEVICES = CheckRow(
    id="BW228",
    name="line-visible-devices",
    layer=Layer.LAUNCHER,
    title=f"{VARIABLE} for all ranks",
    right="not on the line, or as many GPUs as the ranks of a host use",
    why=(
        "The line gives each rank the same value. With fewer GPUs than the ranks of a host use,"
        " nccl-tests finds no such device, or two ranks choose the same GPU and NCCL stops:"
        " duplicate GPU detected."
    ),
    fix=f"leave out -x {VARIABLE}",
    stays=STAYS,
    reads=("the command line",),
    sources=("CUDA C++ programming guide, environment variables",),
)


@rule(VISIBLE_DEVICES)
def check_visible_devices(line: Line) -> Iterator[Found]:
    """The number of GPUs in it, compared with what a host's ranks use."""
    value = dict(line.variables).get(VARIABLE)
    if value is None:
        yield skipped(f"the line does not set {VARIABLE}")
        return
    count = len([word for word in value.split(",") if word.strip()])
    program = perf(line)
    if program is None or unset(value):
        yield skipped("not nccl-tests, or the value is unknown")
        return
    each = (line.ranks_per_node or 1) * program.devices
    evidence = Evidence(f"-x {VARIABLE}", value, f"{each} GPUs")
    if count < each:
        message = f"{VARIABLE}={value} has {count} GPUs; the ranks of a host need {each}"
        yield failed("", message, evidence, fix=f"leave out -x {assignment(VARIABLE, value)}")
    else:
        yield passed("", f"{count} GPUs for {each} on a host", evidence)


REPEATED = CheckRow(
    id="BW234",
    name="line-repeated",
    layer=Layer.LAUNCHER,
    title="variables and parameters given twice",
    right="each once",
    why=(
        "Open MPI rejects a parameter with two values; 4.1 even rejects the same value twice. "
        "For a variable, 4.1.4 uses the last value, 5.0.11 the first."
    ),
    fix="remove one of them",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, -x and --mca",),
)


@rule(REPEATED)
def check_repeated(line: Line) -> Iterator[Found]:
    """Names with different values, and for Open MPI 4 with the same."""
    given = [(name, value) for name, value in line.variables if value is not None]
    given += [
        (f"--{parameter.kind} {parameter.name}", parameter.value) for parameter in line.parameters
    ]
    if not given:
        yield skipped("the line has no variable and no parameter")
        return
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    strict = 0 < line.major < 5
    twice = {
        name: every
        for name, every in values.items()
        if len(every if strict and name.startswith("--") else set(every)) > 1
    }
    for name, every in twice.items():
        evidence = [Evidence(name, value) for value in every]
        worse = failed if name.startswith("--") else warned
        yield worse(
            "",
            f"{name} is given as {' and as '.join(every)}",
            *evidence,
            fix=filled("remove one of the values of {name}", name=name),
        )
    if not twice:
        yield passed("", f"{len(values)} names, each with one value")


LONG_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
QUOTES = "\u2018\u2019\u201c\u201d"

DASHES = CheckRow(
    id="BW236",
    name="line-dashes",
    layer=Layer.LAUNCHER,
    title="dashes and quotes",
    right="ASCII - ' and \"",
    why=(
        "Documents and web pages turn -- into a long dash, and straight quotes into curly ones. "
        "A launcher takes a word with such a dash for the program. The shell keeps curly quotes as "
        "part of the value."
    ),
    fix="retype the word",
    stays=STAYS,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun",),
)


@rule(DASHES)
def check_dashes(line: Line) -> Iterator[Found]:
    """Each word."""
    strange = [word for word in line.argv if word[:1] in [*LONG_DASHES] or set(word) & set(QUOTES)]
    if strange:
        evidence = Evidence("words", " ".join(strange[:4]), "ASCII")
        yield failed(
            "",
            f"{strange[0]} has a dash or quote that is not ASCII",
            evidence,
            fix=filled("retype {text} with plain - and quotes", text=strange[0]),
        )
    else:
        yield passed("", "all dashes and quotes are ASCII")
