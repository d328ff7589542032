"""Reads from a log with which settings of NCCL it ran.

NCCL's own lines state them, at NCCL_DEBUG=INFO:

    NCCL INFO NCCL_ALGO set by environment to Ring.
    NCCL INFO NVLS multicast support is not available on dev 0
    NCCL INFO 24 coll channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer

So does the command, where it was kept with its output:

    mpirun -np 8 -x NCCL_ALGO=Ring ./all_reduce_perf -b 8 -e 8G
    NCCL_NVLS_ENABLE=0 ./all_reduce_perf -g 8
"""

import re

from busbw.core.env import shown
from busbw.measure.formats.read_nccl_tests_rows import columns

MAX_LINE = 4096
_STATED = re.compile(r"NCCL INFO (NCCL_[A-Z0-9_]{1,64}) set by environment to (\S[^\r\n]*)")
_ASSIGNED = re.compile(r"(\w{1,64})=(\"[^\"]*\"|'[^']*'|(?:\\\S|[^\s\\;&|])*)")
_PROMPT = re.compile(r"[^=]{0,80}?[$#%>+] ")
_PROGRAM = re.compile(r"\b(?:\w+_perf(?:_mpi)?|mpirun|mpiexec|srun)\b")
# Words behind which a variable is set. Those of mpirun, srun and docker repeat; export and env
# stand before several.
_SETS = ("-x", "--env", "-e", "export", "env")
_NVLS = re.compile(
    r"NCCL INFO (?:NVLS multicast support is (not )?available"
    r"|\d+ coll channels,[^\r\n]{0,64}? (\d+) nvls channels)"
)


def environment(text: str) -> dict[str, str]:
    """NCCL's variables that the log states; its own lines come before the command's."""
    given: dict[str, str] = {}
    stated: dict[str, str] = {}
    before_table = True
    for line in text.splitlines():
        if len(line) > MAX_LINE:
            continue
        before_table = before_table and columns(line) is None
        match = _STATED.search(line)
        if match:
            stated[match[1]] = match[2].strip().removesuffix(".")
        elif before_table and "NCCL_" in line:
            given |= _given(line)
    return {name: shown(name, value) for name, value in (given | stated).items()}


def _given(line: str) -> dict[str, str]:
    """NCCL's variables that a line sets, if it is of a command and no comment or prose."""
    runs = _PROGRAM.search(line) is not None
    if line.lstrip().startswith("#") and not runs:
        return {}
    start = _PROMPT.match(line)
    rest = line[start.end() :] if start else line
    variables: dict[str, str] = {}
    before, at_start, last_end = "", True, 0
    for match in _ASSIGNED.finditer(rest):
        words = rest[last_end : match.start()].split()
        before, last_end = words[-1] if words else before, match.end()
        at_start = at_start and not words
        if match[1].startswith("NCCL_") and (at_start or before in _SETS):
            variables[match[1]] = match[2].strip("\"'").replace("\\", "")
    is_command = runs or not at_start or not rest[last_end:].strip(" \\")
    return variables if is_command else {}


def nvls(text: str) -> bool | None:
    """Whether NCCL could let NVSwitches reduce; None if none of its lines says so."""
    found = [
        not missing if channels is None else channels != "0"
        for missing, channels in (match.groups() for match in _NVLS.finditer(text))
    ]
    return all(found) if found else None
