"""One of several processes that tune together: each simulates all ranks and reports the times of
its own.
"""

import os
import sys

from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.sim import SimEngine
from busbw.launch.rendezvous import join
from busbw.measure.events import Event
from busbw.tune.job import DUEL_TURNS, TuningSearch
from busbw.tune.types import Tried, Trying, TuneJob

SIZES = (1 << 10, 1 << 20)


control = join(dict(os.environ), expect=None)
if control.process == 1:
    os.environ["NCCL_ALGO"] = "Ring"  # one rank cannot run what others can
# The ranks have different noise, so that they would decide differently if each did alone.
engine = SimEngine(
    control.processes, {"ll": 2.0, "channel_us": 0.3, "noise": 0.03, "seed": float(control.process)}
)
engine.allocate(SIZES[-1], SIZES[-1])
engine.ranks = [control.process]
events: list[Event] = []
spec = SweepSpec(collective="all_reduce", sampling=Sampling())
search = TuningSearch(
    TuneJob(sweep=spec, seconds=0.5),
    engine,
    engine.tuner(),
    control,
    events.append,
    lambda *_: None,
)
for size in SIZES:
    search.size(size)
trials = [event.trial for event in events if isinstance(event, Tried)]
assert bool(events) == (control.process == 0)
assert all(event.choice is None for event in events if isinstance(event, Trying)) is (
    control.process != 0
)
assert not any(
    event.choice and event.choice.algorithm != "Ring"
    for event in events
    if isinstance(event, Trying)
)
for trial in trials:
    sys.stdout.write(
        f"{trial.size_bytes} {trial.choice}"
        f" {16 < len(trial.default_s) == len(trial.choice_s) <= DUEL_TURNS[1]}\n"
    )
control.close()
