"""`elastic_worker.py FOLDER`: a worker of an elastic job without a training.

It logs its worlds and does what files in FOLDER say.

`done`: end with 0. `fail.SLOT`: end with 7. `next.WORLD`: leave that world; rank 0 makes it when it
is told to. `hang.SLOT`: never leave. `hold`: do not ask for a world yet, and make `held`.
"""

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from busbw_accel.horovod.elastic import processes

folder = Path(sys.argv[1])
while (folder / "hold").exists():
    (folder / "held").touch()
    time.sleep(0.01)
while True:
    world = processes.join_world()
    with (folder / "log").open("a") as log:
        log.write(json.dumps({**asdict(world), "pid": os.getpid()}) + "\n")
    following = folder / f"next.{world.number}"
    while not following.exists() or (folder / f"hang.{world.local_rank}").exists():
        if (folder / "done").exists():
            sys.exit(0)
        if (folder / f"fail.{world.local_rank}").exists():
            sys.exit(7)
        if processes.has_new_world():
            following.touch()
        time.sleep(0.01)
