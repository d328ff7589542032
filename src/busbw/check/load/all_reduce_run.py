"""`python -m busbw.check.load.all_reduce_run SECONDS` measures an all_reduce over all GPUs of this
machine, and prints an AllReduce as JSON.
"""

import os
import sys

import msgspec

from busbw.check.load.all_reduce import AllReduce
from busbw.core.errors import BusbwError
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.cuda_runtime import device_count
from busbw.measure.api import run
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.model.reference.curves import Reference, built_in, with_own
from busbw.reference.own_table import read
from busbw.reference.place import own_file

SMALLEST, LARGEST, FACTOR = 128 << 20, 1 << 30, 2  # sizes that most published runs have
CELLS = 8  # four sizes, out of place and in place
PRECISION = 0.05  # runs of healthy systems differ by more


def measure(seconds: float) -> AllReduce:
    """The findings of a sweep that samples for `seconds` in all."""
    gpus = 0
    try:
        gpus = device_count()
        if gpus < 2:
            return AllReduce(gpus, reason="one GPU: no data crosses a link")
        spec = SweepSpec(
            collective="all_reduce",
            min_bytes=SMALLEST,
            max_bytes=LARGEST,
            step_factor=FACTOR,
            sampling=Sampling(precision=PRECISION, max_time_s=seconds / CELLS),
        )
        sink = Sink(RunRecord(known=_known))
        result = run(spec, sink=sink, engine="nccl", program="busbw check")
    except BusbwError as error:
        return AllReduce(gpus, reason=error.message)
    return AllReduce(gpus, tuple(result.findings))


def _known() -> Reference:
    file = own_file(os.environ)
    try:
        return with_own(read(file)) if file else built_in()
    except BusbwError:  # `busbw reference` says what is wrong with it
        return built_in()


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(float(sys.argv[1]))).decode())
