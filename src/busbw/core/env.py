"""The table of environment variables busbw reads, and which variables a result may carry.

A result keeps every name that concerns communication but masks values that look like secrets; all other variables stay out of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: what it does, and whose it is (nccl-tests' or busbw's own)."""

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

VARIABLES: tuple[Variable, ...] = (
    Variable("NCCL_TESTS_DEVICE", "GPU index of every process: this value plus the number of the GPU in the process", "nccl-tests"),
    Variable("NCCL_TESTS_MIN_BW", "fail when average busbw is below 0.9 times this many GB/s", "nccl-tests"),
    Variable("NCCL_TESTS_SPLIT_MASK", "split the processes into groups: colour = process AND this hexadecimal mask", "nccl-tests"),
    Variable("NCCL_TESTS_SPLIT", "split the processes into groups: AND, OR, MOD or DIV and a number", "nccl-tests"),
    Variable(ALLTOALLV.matrix_file, "alltoallv: square matrix of bytes from each rank to each rank", "nccl-tests"),
    Variable(ALLTOALLV.matrix_scale, "alltoallv: factor on that matrix, 1.0 by default", "nccl-tests"),
    Variable(ALLTOALLV.spread, "alltoallv: 0 = even, 1 = the farthest rank gets the most and oneself nothing", "nccl-tests"),
    Variable(ALLTOALLV.print_summary, "alltoallv: set to 1 for one line of bytes per rank", "nccl-tests"),
    Variable("BUSBW_ENGINE", "engine of the compat face, which has no option for it: nccl, torch, mpi, sim", "busbw"),
    Variable("BUSBW_IFNAME", "interface or CIDR of NCCL's and Gloo's sockets, resolved on each host; --ifname sets it", "busbw"),
    Variable("BUSBW_PLUGIN", "library of NCCL plugins for --net busbw and `busbw env net`, instead of busbw-native's", "busbw"),
)

# What launchers tell their own processes says nothing to a reader: addresses and folders of one run, and a key.
_OPEN_MPI = r"OMPI_MCA_(?!initial_wdir|ess_|orte_(?:precondition|hnp|local_daemon|jobfam|top_session|tmpdir|app_num|ess|num_nodes|launch))"
_CARRIED = re.compile(
    rf"^(R?NCCL_|BUSBW_|{_OPEN_MPI}|PMIX_MCA_|PRTE_MCA_|MPICH_|I_MPI_|UC[XC]_|FI_|GLOO_|TORCH_NCCL_|CUDA_|SLURM_|NVIDIA_VISIBLE_DEVICES$|LD_LIBRARY_PATH$)"
)
_OWN = "BUSBW_JOB"  # marks the processes of one run
_SECRET = re.compile(r"(TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH|COOKIE)", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/\s]*:[^/@\s]*@")  # a user and password in a URL
MASK = "***"


def shown(name: str, value: str) -> str:
    """The value as a result may hold it: masked unless the variable concerns communication, and neither name nor value tells a secret."""
    return value if _CARRIED.match(name) and not _SECRET.search(name) and not _LOGIN.search(value) else MASK


def carried(environment: Mapping[str, str], *, all_names: bool = False) -> dict[str, str]:
    """The variables that a result holds, sorted by name, secrets masked; with `all_names` the others too, their values masked.

    nccl-tests writes its whole environment, values and all, into shared results; the names are kept for its readers.
    """
    names = sorted(name for name in environment if (all_names or _CARRIED.match(name)) and name != _OWN)
    return {name: shown(name, environment[name]) for name in names}
