"""What every rank is told: the sweep, the engine, and what the result must remember of the call."""

from typing import Any

import msgspec

from busbw.core.planning import PlanSpec
from busbw.core.sweep import SweepSpec
from busbw.core.training import TrainSpec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run as handed to its ranks.

    `gpus_per_process` ranks are driven by each process; `ranks` is what was asked for (0: as many as the launcher started), so that a
    split brain is seen; `limit_s` is what one place of the sweep may take, `start_limit_s` what precedes the sweep (0: no limit); `ideal`
    is the user's own bound in GB/s ('' for what the topology gives); `simulation` configures `sim`;
    `inject` is a fault to show (measure.inject); `net` is the network that NCCL shall use ('' for NCCL's own choice); with `training` the
    ranks train, and nothing of the sweep is run; with a `plan` too they measure what one is made of.
    """

    sweep: SweepSpec
    engine: str
    gpus_per_process: int = 1
    ranks: int = 0
    program: str = "busbw"
    argv: list[str] = []
    ideal: str = ""
    simulation: dict[str, float] = {}
    compat: bool = False
    inject: str = ""
    limit_s: float = 0.0
    start_limit_s: float = 0.0
    net: str = ""
    training: TrainSpec | None = None
    plan: PlanSpec | None = None


def encode(job: Job) -> str:
    """The job as one argument of a command line; what is as by default stays out of it."""
    fields = _changed(job)
    fields["sweep"] = {"collective": job.sweep.collective, **_changed(job.sweep)}
    return msgspec.json.encode(fields).decode()


def _changed(struct: msgspec.Struct) -> dict[str, Any]:
    values = msgspec.structs.asdict(struct)
    defaults = {
        field.name: field.default_factory()
        if field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT
        else field.default
        for field in msgspec.structs.fields(struct)
    }
    return {name: value for name, value in values.items() if value != defaults[name]}


def decode(text: str) -> Job:
    """The job behind that argument."""
    return msgspec.json.decode(text, type=Job)
