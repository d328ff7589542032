"""Placeholder replaced by the helper's."""

from busbw.core.checking import CheckReport


def text(report: CheckReport) -> str:
    """None yet."""
    return ""
