"""Checks of a machine, over what the package host reads. A module has the checks of one subject.

A program calls the package: `busbw.check()` is `busbw.check.api.check`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from busbw.check.types import CheckReport, ClusterReport


class _Check(ModuleType):
    """A name of the package busbw is either this package or a function; so it is both."""

    def __call__(self, *machine: Any, **options: Any) -> "CheckReport | ClusterReport":
        from busbw.check.api import check

        report: CheckReport | ClusterReport = check(*machine, **options)
        return report


sys.modules[__name__].__class__ = _Check
