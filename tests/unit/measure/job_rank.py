"""One rank of test_jobs.py, for what needs several processes. Rank 0 prints one JSON object.

`job_rank.py averages` takes each way of averaging a time over ranks; `job_rank.py measure FIELDS`
runs a whole job on the mpi engine.
"""

import json
import os
import sys

import msgspec

from busbw.core.sweep import SweepSpec
from busbw.launch.rendezvous import join
from busbw.measure.events import Event, encode
from busbw.measure.job import SweepJob
from busbw.measure.sweep import measure
from busbw.measure.timing import over_ranks


def main() -> int:
    """Runs the mode that the first argument names."""
    control = join(dict(os.environ), expect=None)
    if sys.argv[1] == "averages":
        seconds = [
            over_ranks(control, float(control.process + 1), average) for average in (0, 1, 2, 3, 9)
        ]
        gathered = control.gather(seconds)
        if gathered is not None:
            sys.stdout.write(json.dumps(gathered) + "\n")
    else:
        spec = msgspec.convert({"collective": "all_reduce", **json.loads(sys.argv[2])}, SweepSpec)
        events: list[Event] = []
        measure(SweepJob(sweep=spec, engine="mpi"), control, events.append)
        assert control.process == 0 or not events, "only process 0 emits events"
        sys.stdout.writelines(encode(event).decode() for event in events)
    sys.stdout.flush()
    control.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
