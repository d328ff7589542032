"""What every rank of `busbw train` runs: join the others, train, and emit events on rank 0.

Started as `python -m busbw.train.rank JOB` by a launcher.
"""

import os
import sys
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.exits import Exit
from busbw.engines.base import Control
from busbw.engines.registry import Opening, engine
from busbw.host import process
from busbw.launch.control import join
from busbw.measure import network
from busbw.measure.events import At, Emit, Ended, Event, Iteration, Note, Started, Trained, say
from busbw.measure.job import Job, decode
from busbw.measure.rank import DAEMONS, ask_library, begun, claim_stdout, fail, join_groups, watched
from busbw.measure.runner import now
from busbw.train.names import known

ENGINE = "torch"


def train(job: Job, control: Control, emit: Emit, at: At) -> None:
    """Run the benchmark on this process. `emit` is called on process 0 only."""
    from busbw.train.bench import Bench
    from busbw.train.methods import parse
    from busbw.train.models import BY_NAME
    from busbw.train.survey import survey

    spec = job.training
    if spec is None:
        raise UsageError("a rank of busbw train got a job without a training", "start it with busbw train")
    party = join_groups(control)
    if party.groups > 1:
        raise UsageError("NCCL_TESTS_SPLIT makes groups, but a training uses all ranks", "unset it")
    at("init", ENGINE)
    opening = Opening(party.group, job.sweep, control.rank, party.local, party.color, 1, {})
    with network.starting(job, control) as log:
        opened: Any = engine(ENGINE).open(opening)
    at("prepare", "")
    bench = Bench(spec, BY_NAME[known(spec.model)], opened.device, control)
    result = begun(job, party, opened)
    result.training = bench.training
    result.library.network = network.agreed(job, control, result.library, log.networks)

    def tell(event: Event) -> None:
        if control.rank == 0:
            emit(event)

    tell(Started(result))
    if note := network.unconfirmed(job, result.library.network):
        tell(Note(note))
    methods = [parse(name) for name in spec.methods]
    if job.plan:
        survey(bench, job.plan, methods, tell, at)
    else:
        bench.run(methods, lambda *values: tell(Iteration(*values)), lambda run: tell(Trained(run)), at)
    at("teardown", "")
    tell(Ended(now(), opened.memory_use()))
    opened.close()


def main(argv: list[str] | None = None) -> int:
    """Entry point of a launched rank."""
    process.die_with_parent()
    emit = claim_stdout()
    job = decode((sys.argv[1:] if argv is None else argv)[0])
    control: Control | None = None
    try:
        dog = watched(job, say, DAEMONS)
        dog.at("rendezvous", "")
        control = join(dict(os.environ), expect=job.ranks or None)
        ask_library(dog, job, control.rank)
        train(job, control, emit, dog.at)
        control.close()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - after any error, the other ranks must not wait
        return fail(error, control)
    return int(Exit.OK)


if __name__ == "__main__":
    sys.exit(main())
