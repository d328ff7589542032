"""NCCL under load: an all_reduce over all GPUs of the machine."""

from collections.abc import Iterator

import msgspec

from busbw.check.base import check, failed, passed, skipped, unknown, warned
from busbw.check.load.all_reduce import CALL, AllReduce
from busbw.check.load.judge import COMMAND
from busbw.check.load.source import not_asked
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer, RunFinding, Verdict

BANDWIDTH = "bandwidth"
FIX = "busbw run all_reduce -b 128M -e 1G --json run.json; busbw reference show run.json --plot"

LOAD_ALL_REDUCE = CheckRow(
    id="BW266",
    name="nccl-load-all-reduce",
    layer=Layer.NCCL,
    title="all_reduce of 128 MiB to 1 GiB over all GPUs with NCCL, under load",
    right=(
        "correct data, and busbw within the range of runs of the same system: your own (busbw"
        " reference), or published ones; without any, 80 % of what NCCL plans with"
    ),
    why=(
        "It needs all GPUs, NVLinks and switches of the host together, as a training does. A lost"
        " link, a GPU with reduced clocks or NVLink SHARP that is off slow it down, and no other"
        " host is in doubt."
    ),
    fix=FIX,
    stays="depends on the cause",
    reads=("an all_reduce of busbw over all GPUs", "the table of reference curves"),
    sources=("NVIDIA/nccl-tests issue 389",),
)


@check(LOAD_ALL_REDUCE)
def check_load_all_reduce(machine: Machine) -> Iterator[Finding]:
    """The findings of the run on data and bandwidth; skip without a load, or with one GPU."""
    reading = machine.call(CALL, not_asked)
    if reading.data is None:
        yield skipped(f"judged only under load: {COMMAND}")
        return
    tried = msgspec.json.decode(reading.data, type=AllReduce)
    if not tried.findings:
        yield skipped(tried.reason) if tried.gpus == 1 else unknown("", tried.reason, fix=FIX)
        return
    for finding in tried.findings:
        if finding.verdict is Verdict.FAIL or finding.id == BANDWIDTH:
            yield _of_run(finding)


def _of_run(finding: RunFinding) -> Finding:
    evidence = Evidence("busbw run all_reduce", finding.evidence or finding.message)
    if finding.verdict is Verdict.PASS:
        return passed("", finding.message, evidence)
    if finding.verdict is Verdict.FAIL:
        return failed("", finding.message, evidence, fix=finding.fix or FIX, weight=1.0)
    make = warned if finding.verdict is Verdict.WARN else unknown
    return make("", finding.message, evidence, fix=FIX)
