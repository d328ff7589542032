"""The table of environment variables that busbw reads, and the rules for variables in results.

A result contains the variables that concern communication, with values masked if they look like
secrets.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from busbw.core.masking import MASK, masked_value
from busbw.core.settings import CONFIG_VARIABLE, FILE_NAME, SETTINGS

# Excludes variables that launchers set for their own processes: addresses, directories and a key of
# one run.
_OPEN_MPI = (
    r"OMPI_MCA_(?!initial_wdir|ess_|orte_"
    r"(?:precondition|hnp|local_daemon|jobfam|top_session|tmpdir|app_num|ess|num_nodes|launch))"
)
_CARRIED = re.compile(
    rf"^(R?NCCL_|BUSBW_|{_OPEN_MPI}|PMIX_MCA_|PRTE_MCA_|MPICH_|I_MPI_|UC[XC]_|FI_|GLOO_"
    rf"|TORCH_NCCL_|CUDA_|SLURM_|NVIDIA_VISIBLE_DEVICES$|LD_LIBRARY_PATH$)"
)
_JOB_VARIABLE = "BUSBW_JOB"  # marks the processes of one run


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its effect, and whether nccl-tests or busbw defined it."""

    name: str
    meaning: str
    owner: str


@dataclass(frozen=True, slots=True)
class Alltoallv:
    """Names of the four variables of alltoallv."""

    matrix_file: str = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE"
    matrix_scale: str = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE"
    spread: str = "NCCL_TESTS_ALLTOALLV_SPREAD"
    print_summary: str = "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY"


ALLTOALLV = Alltoallv()


@dataclass(frozen=True, slots=True)
class Capture:
    """Names and values of the variables that switch the profiler plugin and the recorder on."""

    plugin: str = "NCCL_PROFILER_PLUGIN"
    folder: str = "BUSBW_CAPTURE"
    mode: str = "BUSBW_CAPTURE_MODE"
    steps: str = "BUSBW_CAPTURE_STEPS"
    launch: str = "BUSBW_CAPTURE_LAUNCH"  # a name for the command that starts the ranks
    with_torch: str = "BUSBW_WITH_TORCH"  # MODULE:FUNCTION to call once PyTorch is imported
    cheap: str = "cheap"
    timed: str = "timed"


CAPTURE = Capture()


@dataclass(frozen=True, slots=True)
class TunerVariables:
    """Names of the variables that give the tuner plugin a table."""

    plugin: str = "NCCL_TUNER_PLUGIN"
    table: str = "BUSBW_TUNER_TABLE"


TUNER = TunerVariables()

LAB_RATE = "BUSBW_LAB_RATE"
LOOP = "BUSBW_LOOP"

VARIABLES: tuple[Variable, ...] = (
    Variable("NCCL_TESTS_DEVICE", "index of the first GPU of each process", "nccl-tests"),
    Variable(
        "NCCL_TESTS_MIN_BW",
        "fail if average busbw is below 0.9 times this value in GB/s",
        "nccl-tests",
    ),
    Variable(
        "NCCL_TESTS_SPLIT_MASK",
        "split the processes into groups: color = process AND this hexadecimal mask",
        "nccl-tests",
    ),
    Variable(
        "NCCL_TESTS_SPLIT",
        "split the processes into groups: AND, OR, MOD or DIV and a number",
        "nccl-tests",
    ),
    Variable(
        ALLTOALLV.matrix_file,
        "alltoallv: file with a square matrix of the bytes from each rank to each rank",
        "nccl-tests",
    ),
    Variable(
        ALLTOALLV.matrix_scale,
        "alltoallv: factor applied to that matrix, 1.0 by default",
        "nccl-tests",
    ),
    Variable(
        ALLTOALLV.spread,
        "alltoallv: 0 = even; 1 = bytes grow with the distance to the rank, none to itself",
        "nccl-tests",
    ),
    Variable(ALLTOALLV.print_summary, "alltoallv: 1 prints the bytes of each rank", "nccl-tests"),
    *(Variable(row.variable, row.meaning, "busbw") for row in SETTINGS),
    Variable(
        CONFIG_VARIABLE, f"file of settings, instead of those named {FILE_NAME}: --config", "busbw"
    ),
    Variable(
        CAPTURE.folder,
        "folder for the files of the profiler plugin; set by `busbw capture`",
        "busbw",
    ),
    Variable(
        TUNER.table,
        "table of the tuner plugin, written by `busbw tune`; set by `busbw replay` for its own"
        " ranks",
        "busbw",
    ),
    Variable(
        CAPTURE.mode, "cheap: calls, sizes and order; timed: also durations on the GPU", "busbw"
    ),
    Variable(
        LAB_RATE,
        "bytes per second that a host of `busbw lab` sends at most, set there by `busbw lab exec`:"
        " the rate of its virtual interfaces",
        "busbw",
    ),
    Variable(
        "BUSBW_LOG",
        "info: what busbw decides and why, on stderr; debug: also what it reads and tries; set"
        " by -v",
        "busbw",
    ),
    Variable(
        LOOP,
        "native: busbw-native calls NCCL for timed operations, or the run fails; python: busbw"
        " itself does, even if busbw-native is there",
        "busbw",
    ),
    Variable(
        "BUSBW_PLUGIN",
        "path of the NCCL plugin library for --net busbw, instead of busbw-native's",
        "busbw",
    ),
)


def shown(name: str, value: str) -> str:
    """The value for a result: masked unless the variable concerns communication and neither name
    nor value looks like a secret.
    """
    return value if _CARRIED.match(name) and masked_value(name, value) == value else MASK


def carried(environment: Mapping[str, str], *, all_names: bool = False) -> dict[str, str]:
    """The variables for a result, sorted by name, with secrets masked.

    `all_names` adds all other variables with masked values: nccl-tests writes its whole environment
    to its results, and programs may read the names.
    """
    return {
        name: shown(name, value)
        for name, value in sorted(environment.items())
        if (all_names or _CARRIED.match(name)) and name != _JOB_VARIABLE
    }


@contextmanager
def temporarily(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of this process in this context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
