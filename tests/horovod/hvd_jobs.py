"""Jobs of real ranks between `hvd.init` and `hvd.shutdown`: see `jobs` of the tests of accel."""

from functools import partial
from pathlib import Path

import jobs

run = partial(jobs.run, program=Path(__file__).with_name("hvd_ranks.py"))
