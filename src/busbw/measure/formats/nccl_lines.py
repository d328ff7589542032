"""Completes the result of a log by what NCCL's own lines in it state."""

from busbw.core.ran import merged
from busbw.core.result import Result
from busbw.measure.formats import nccl_connections, nccl_kernels, nccl_settings
from busbw.model import transport_findings


def add(result: Result, text: str) -> None:
    """Add the settings, the connections and kernels, and what follows."""
    result.environment = nccl_settings.environment(text)
    result.nvls = nccl_settings.nvls(text)
    result.ran = merged([nccl_connections.read(text)])
    nccl_kernels.add(result, text)
    result.findings += transport_findings.findings(result)
