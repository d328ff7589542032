"""Variables of a line that do not reach the ranks, that are given twice, or that are not ASCII."""

import re
from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.command.line import CHANGE_SCRIPT, EXPORTS, CommandLine, needs_shell, rule
from busbw.check.command.nccl_tests import perf
from busbw.check.shell_words import assignment, filled, word
from busbw.check.types import Evidence, Finding
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
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment"),
    sources=("Open MPI documentation, mpirun, -x", "srun(1), --export"),
)
VARIABLE = "CUDA_VISIBLE_DEVICES"
LONG_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
QUOTES = "\u2018\u2019\u201c\u201d"


@rule(EXPORT)
def check_export(line: CommandLine) -> Iterator[Finding]:
    """Variables without a value, variables that mpirun does not pass on, and srun's --export."""
    if line.launcher == "srun":
        faults = list(_judge_srun(line))
    else:
        faults = [*_judge_not_passed(line), *_judge_without_value(line)]
    yield from faults
    if not line.variables and not faults:
        yield skipped("the line exports no variable")
    elif not faults:
        yield passed("", f"{len(line.variables)} variables")


def _judge_srun(line: CommandLine) -> Iterator[Finding]:
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


def _judge_not_passed(line: CommandLine) -> Iterator[Finding]:
    options = {name for name, _ in line.passed}
    names = dict.fromkeys((*(name for name, _ in line.before), *line.exported))
    unexported = [name for name in names if name not in options and not name.startswith(_FORWARDED)]
    if line.launcher == "mpirun" and line.several and not line.allocated and unexported:
        named = ", ".join(unexported)
        message = f"mpirun passes {named} only to the ranks on this host"
        yield warned(
            "",
            message,
            Evidence("before mpirun", named, "-x"),
            fix=" ".join(f"-x {word(name)}" for name in unexported),
        )


def _judge_without_value(line: CommandLine) -> Iterator[Finding]:
    defined = {name for name, _ in line.before} | set(line.environment or {})
    undefined = [
        name
        for name, value in line.passed
        if value is None and name not in defined and shown(name, "x") != MASK
    ]
    if undefined and not line.environment_is_whole:
        named = ", ".join(undefined)
        yield unknown(
            "",
            f"whether {named} has a value is unknown",
            Evidence("-x", named, "a value in the environment"),
        )
        return
    for name in undefined:
        message = f"-x {name}, but the environment has no {name}"
        yield warned(
            "",
            message,
            Evidence(f"${name}", "not set", "a value"),
            fix=filled("-x {name}=VALUE, or export {name} before", name=name),
        )


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
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("CUDA C++ programming guide, environment variables",),
)


@rule(VISIBLE_DEVICES)
def check_visible_devices(line: CommandLine) -> Iterator[Finding]:
    """The number of GPUs in the variable, compared with what the ranks of a host use."""
    value = dict(line.variables).get(VARIABLE)
    if value is None:
        yield skipped(f"the line does not set {VARIABLE}")
        return
    count = len([word for word in value.split(",") if word.strip()])
    program = perf(line)
    if program is None or needs_shell(value):
        yield skipped("not nccl-tests, or the value is unknown")
        return
    needed = (line.ranks_per_node or 1) * program.devices
    evidence = Evidence(f"-x {VARIABLE}", value, f"{needed} GPUs")
    if count < needed:
        message = f"{VARIABLE}={value} has {count} GPUs; the ranks of a host need {needed}"
        yield failed("", message, evidence, fix=f"leave out -x {assignment(VARIABLE, value)}")
    else:
        yield passed("", f"{count} GPUs for {needed} on a host", evidence)


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
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun, -x and --mca",),
)


@rule(REPEATED)
def check_repeated(line: CommandLine) -> Iterator[Finding]:
    """Names with different values, and for Open MPI 4 also names given twice with one value."""
    assignments = [(name, value) for name, value in line.variables if value is not None]
    assignments += [
        (f"--{parameter.kind} {parameter.name}", parameter.value) for parameter in line.parameters
    ]
    if not assignments:
        yield skipped("the line has no variable and no parameter")
        return
    values: dict[str, list[str]] = {}
    for name, value in assignments:
        values.setdefault(name, []).append(value)
    strict = 0 < line.major < 5
    twice = {
        name: repeated
        for name, repeated in values.items()
        if len(repeated if strict and name.startswith("--") else set(repeated)) > 1
    }
    for name, repeated in twice.items():
        evidence = [Evidence(name, value) for value in repeated]
        worse = failed if name.startswith("--") else warned
        yield worse(
            "",
            f"{name} is given as {' and as '.join(repeated)}",
            *evidence,
            fix=filled("remove one of the values of {name}", name=name),
        )
    if not twice:
        yield passed("", f"{len(values)} names, each with one value")


DASHES = CheckRow(
    id="BW236",
    name="line-dashes",
    layer=Layer.LAUNCHER,
    title="dashes, quotes and blanks after a backslash",
    right="ASCII - ' and \"; a backslash as the last letter of a line that goes on",
    why=(
        "Documents and web pages turn -- into a long dash, and straight quotes into curly ones. "
        "A launcher takes a word with such a dash for the program. The shell keeps curly quotes as "
        "part of the value. After a backslash and a blank the command ends, and the shell runs the"
        " next line as another one."
    ),
    fix="retype the word",
    stays=CHANGE_SCRIPT,
    reads=("the command line",),
    sources=("Open MPI documentation, mpirun",),
)


@rule(DASHES)
def check_dashes(line: CommandLine) -> Iterator[Finding]:
    """Whether a word has a dash or quote that is not ASCII, or is a blank at the line's end."""
    strange = [word for word in line.argv if word[:1] in [*LONG_DASHES] or set(word) & set(QUOTES)]
    if strange:
        evidence = Evidence("words", " ".join(strange[:4]), "ASCII")
        yield failed(
            "",
            f"{strange[0]} has a dash or quote that is not ASCII",
            evidence,
            fix=filled("retype {text} with plain - and quotes", text=strange[0]),
        )
    elif line.argv[-1].isspace():
        yield failed(
            "",
            "a blank follows the backslash at its end: the shell ends the command there",
            Evidence("the last word", repr(line.argv[-1]), "no blank after the backslash"),
            fix="sed -i 's/\\\\[[:space:]]*$/\\\\/' SCRIPT removes such blanks",
        )
    else:
        yield passed("", "all dashes and quotes are ASCII")
