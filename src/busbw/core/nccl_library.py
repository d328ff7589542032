"""A file of NCCL that ranks load in place of the one installed."""

import msgspec


class NcclLibrary(msgspec.Struct, frozen=True):
    """The file, its version as ncclGetVersion gives it (23203 for 2.32.3), and its hash."""

    path: str
    version: int
    sha256: str
