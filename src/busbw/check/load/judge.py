"""Makes functions that judge one GPU under load the checks of rows."""

from collections.abc import Callable, Iterator
from functools import wraps

import msgspec

from busbw.check.base import Check, check, skipped, unknown
from busbw.check.load.gpu_copies import CALL, GpuLoad, UsableGpus
from busbw.check.load.source import not_asked
from busbw.check.machine import WITH_CPU, Machine
from busbw.check.types import Finding
from busbw.core.finding import CheckRow

COMMAND = "busbw check --load 10"


def under_load(
    row: CheckRow, *, over_pcie: bool
) -> Callable[[Callable[[GpuLoad], Iterator[Finding]]], Check]:
    """Makes a function that judges one GPU under load the check of `row`; see `each_loaded_gpu`."""

    def register(judge: Callable[[GpuLoad], Iterator[Finding]]) -> Check:
        @check(row)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            return each_loaded_gpu(machine, judge, over_pcie=over_pcie)

        return judge_all

    return register


def each_loaded_gpu(
    machine: Machine, judge: Callable[[GpuLoad], Iterator[Finding]], *, over_pcie: bool
) -> Iterator[Finding]:
    """The findings on each GPU; skip without a load, unknown if the load failed.

    With `over_pcie` a GPU with another link to its CPU is skipped.
    """
    reading = machine.call(CALL, not_asked)
    load = None if reading.data is None else msgspec.json.decode(reading.data, type=UsableGpus)
    if load is None:
        yield skipped(f"judged only under load: {COMMAND}")
    elif not load.gpus:
        yield unknown(
            "",
            f"no GPU could be put under load: {load.reason or 'there is none'}",
            fix="nvidia-smi; pip install 'busbw[cuda13]'",
        )
    for gpu in load.gpus if load else ():
        if over_pcie and gpu.name.startswith(WITH_CPU):
            yield skipped(
                f"{gpu.name} is connected to its CPU by NVLink-C2C, not by PCIe", gpu.label
            )
        else:
            yield from judge(gpu)
