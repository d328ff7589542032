"""Whether the other hosts find the program of a line."""

from collections.abc import Iterator
from pathlib import Path

from busbw.check.base import passed, skipped, unknown, warned
from busbw.check.command.line import CHANGE_SCRIPT, CommandLine, needs_shell, rule
from busbw.check.launcher import parameters
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

VARIABLE = "PATH"
EXPORTED_VARIABLES = "mca_base_env_list"  # Open MPI's parameter: A;B=VALUE
DIRECTORY_OPTIONS = ("path", "wdir", "wd")
# On the PATH of a login on any Linux.
SYSTEM_DIRECTORIES = frozenset(
    ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
)
SYSTEM_PROGRAMS = ("bash", "sh", "env", "hostname", "nvidia-smi")
FIX = "-x PATH, or the program's full path"

PROGRAM = CheckRow(
    id="BW237",
    name="line-program",
    layer=Layer.LAUNCHER,
    title="program of mpirun on the other hosts",
    right="-x PATH, or the program's full path",
    why=(
        "On other hosts mpirun looks for a name without a directory on the PATH of a login there,"
        " which lacks the directory of a virtual environment. It then reports that it was unable to"
        " find the executable file, and Open MPI 5 may not end. Or it starts another program of"
        " this name, as the system's python3. --prefix does not change this in Open MPI 5."
    ),
    fix=FIX,
    stays=CHANGE_SCRIPT,
    reads=("the command line", "environment", "PATH"),
    sources=("Open MPI documentation, mpirun, locating files, -x",),
)


@rule(PROGRAM)
def check_program(line: CommandLine) -> Iterator[Finding]:
    """Whether each host finds the program: by a path, or by the PATH that the ranks get."""
    if line.launcher != "mpirun" or not line.several or not line.program:
        yield skipped("not a line of Open MPI's mpirun with a program for several hosts")
        return
    program = line.program[0]
    directory = str(Path(line.program_path).parent) if line.program_path else ""
    if needs_shell(program):
        yield skipped("a shell replaces the program's name")
    elif "/" in program:
        yield passed("", f"{program} is a path")
    elif line.allocated:
        yield passed("", "Slurm gives Open MPI's daemons the PATH of the line")
    elif _passes_path(line):
        yield passed("", f"the line says where {program} is")
    elif directory in SYSTEM_DIRECTORIES or (not directory and program in SYSTEM_PROGRAMS):
        yield passed("", f"{program} is in a directory of the system")
    else:
        yield _judge_name(program, line.program_path)


def _passes_path(line: CommandLine) -> bool:
    """Whether the ranks get the PATH of the line, or a directory to look in."""
    if line.has(*DIRECTORY_OPTIONS) or any(name == VARIABLE for name, _ in line.passed):
        return True
    variables = {**(line.environment or {}), **dict(line.before)}
    given = (*line.parameters, *parameters.of_environment(variables))
    exported = parameters.find_parameter(given, EXPORTED_VARIABLES)
    entries = exported.value.split(";") if exported else []
    return any(entry.partition("=")[0].strip() == VARIABLE for entry in entries)


def _judge_name(program: str, path: str) -> Finding:
    evidence = Evidence("program", path or program, "-x PATH or a full path")
    if not path:
        message = f"other hosts look for {program} on the PATH of a login there"
        return unknown("", message, evidence, fix=FIX)
    message = (
        f"other hosts look for {program} on the PATH of a login there, which may lack"
        f" {Path(path).parent}"
    )
    return warned("", message, evidence, fix=filled("-x PATH, or {path}", path=path))
