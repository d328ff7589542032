"""The Python packages that bring NCCL, whose names say for which CUDA they were built:
nvidia-nccl-cu12.
"""

import json
import re
from importlib import metadata

CALL = "nccl_packages"
_NAME = re.compile(r"nvidia-nccl-cu(\d+)", re.IGNORECASE)


def read_packages() -> str:
    """JSON of [name, version] of those that this Python finds."""
    named = (
        (one.metadata["Name"], one.version)
        for one in metadata.distributions()
        if "Name" in one.metadata
    )
    return json.dumps(sorted({pair for pair in named if _NAME.fullmatch(pair[0])}))


def built_for(name: str) -> int:
    """The major version of CUDA of a package of `read_packages`."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0
