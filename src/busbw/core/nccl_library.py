"""A file of NCCL that ranks load in place of the one installed."""

import msgspec


class NcclLibrary(msgspec.Struct, frozen=True):
    """A file of NCCL."""

    path: str
    version: int  # as ncclGetVersion gives it: 23203 for 2.32.3
    sha256: str  # of the file
