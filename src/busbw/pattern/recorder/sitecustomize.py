"""Records a PyTorch training from inside its ranks.

Python imports this file when it starts, because `busbw capture` puts its folder first in
PYTHONPATH. It uses the standard library alone, since the rank's Python may lack busbw, and passes
on to the sitecustomize of the user, if there is one.

Into the folder BUSBW_CAPTURE each rank writes files while it runs and when it exits, so that they
are there if a scheduler or another rank's death ends it:

* `rank_N.fr`: the dump of PyTorch's Flight Recorder, which has the calls of Gloo too
* `rank_N.ddp`: JSON with the steps of its first model under DistributedDataParallel
* `.rank_N.now`: its process, and how far it is, each second (busbw_rank_now.py)

and rank 0 `.launch`: BUSBW_CAPTURE_LAUNCH, which names the busbw that started it.

With BUSBW_CAPTURE_STEPS=N the training exits with code 0 when the model begins step N + 1. Nothing
else disturbs it.

BUSBW_WITH_TORCH=MODULE:FUNCTION calls a function once PyTorch is imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pickle
import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

# from this folder
import busbw_exit  # type: ignore[import-not-found]
import busbw_graphs  # type: ignore[import-not-found]
import busbw_import_watch  # type: ignore[import-not-found]
import busbw_phases  # type: ignore[import-not-found]
import busbw_rank_now  # type: ignore[import-not-found]
import busbw_rank_steps  # type: ignore[import-not-found]

FOLDER, STEPS = "BUSBW_CAPTURE", "BUSBW_CAPTURE_STEPS"
LAUNCH, LAUNCH_FILE = "BUSBW_CAPTURE_LAUNCH", ".launch"
WITH_TORCH = "BUSBW_WITH_TORCH"
GROUPS_MODULE, DDP_MODULE = "torch.distributed.distributed_c10d", "torch.nn.parallel.distributed"
OPTIMIZER_MODULE, AUTOGRAD_MODULE = "torch.optim.optimizer", "torch.autograd"
NS_PER_US = 1e3
BUCKETS = "rebuilt_per_bucket_param_indices"  # a fact of DDP


class DdpSteps:
    """The steps of one model under DistributedDataParallel.

    A step begins with the first forward after a backward: a training may have several forwards for
    each backward. The model may be gone before the process ends, so that what the file has is
    copied from it.
    """

    def __init__(self, model: Any, limit: int, calls: Any) -> None:
        import torch.distributed as dist

        self._limit = limit
        self._model = weakref.ref(model)
        self._clock = busbw_rank_steps.StepClock(calls)
        self._starts: list[int] = self._clock.starts
        self._waits: dict[int, float] = {}  # by index of the step's duration
        self._computed_us = {"forward": 0.0, "backward": 0.0}  # in the steps that have a wait
        self._iteration = 0  # the last that DDP timed
        self._had_backward = True
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._facts: dict[str, Any] = {}
        self._shapes: list[list[list[int]]] = []
        parameters = _parameters(model)
        if parameters[0].device.type == "cpu":
            # DDP times each step; on a GPU that would make the host wait, so there some.
            model._set_ddp_runtime_logging_sample_rate(1)
        # Every backward uses every parameter, unless DDP was told otherwise: then all are watched,
        # so that all ranks count the same steps. Checkpoints do not have these hooks.
        partial = model.find_unused_parameters or model.static_graph
        for parameter in parameters if partial else parameters[-1:]:
            parameter.register_post_accumulate_grad_hook(self._note_backward)

    @property
    def unused(self) -> bool:
        """Whether the model went without a step."""
        return not self._starts and self._model() is None

    def _note_backward(self, _parameter: object) -> None:
        self._had_backward = True

    def begin(self, model: Any) -> bool:
        """Before a forward of any model: whether a step begins with it.

        SystemExit when enough steps were recorded; nothing else leaves it.
        """
        begins = False
        with contextlib.suppress(Exception):
            begins = self._had_backward and model is self._model() and self._is_training(model)
        if begins:
            self._had_backward = False
            self._clock.begin()
            if self._limit and len(self._starts) > self._limit:
                self._end(model)
                raise SystemExit(0)
        return begins

    def _end(self, model: Any) -> None:
        with contextlib.suppress(Exception):
            model.logger.set_runtime_stats_and_log()  # as the next step would
        self.take_facts()
        if self.rank == 0:
            with contextlib.suppress(OSError):
                sys.stderr.write(
                    f"busbw: {self._limit} steps are recorded; the training ends here\n"
                )

    def _is_training(self, model: Any) -> bool:
        import torch

        return bool(model.training and model.require_backward_grad_sync and torch.is_grad_enabled())

    def take_facts(self) -> None:
        """Read what DDP says about itself and about the step before the one that begins.

        DDP adds up the times of a step when the next one begins.
        """
        with contextlib.suppress(Exception):
            model: Any = self._model()
            facts = model._get_ddp_logging_data()
            if facts.get(BUCKETS) != self._facts.get(BUCKETS):
                self._shapes = _shapes(model, facts[BUCKETS])
            self._facts = facts
            waited = facts.get("backward_comm_time", 0) - facts.get(
                "backward_compute_comm_overlap_time", 0
            )
            if facts.get("iteration", 0) > self._iteration and waited >= 0:
                self._iteration = facts["iteration"]
                self._waits[len(self._starts) - 2] = waited / NS_PER_US
                for phase in self._computed_us:
                    self._computed_us[phase] += facts[f"{phase}_compute_time"] / NS_PER_US

    def record(self) -> dict[str, Any]:
        """What the file has."""
        wait_steps = sorted(step for step in list(self._waits) if step >= 0)
        in_calls = self._clock.call_waits_us
        return {
            "version": 1,
            "rank": self.rank,
            "world": self.world,
            "host": platform.node(),
            "steps_us": self._durations_us(),
            "waits_us": [self._waits[step] for step in wait_steps],
            "wait_steps": wait_steps,
            "call_waits_us": [in_calls.get(step, 0.0) for step in wait_steps],
            "bucket_mb": self._facts.get("bucket_cap_bytes", 0) / 2**20,
            "hook": self._facts.get("comm_hook", ""),
            "shapes": self._shapes,
            "parameter_bytes": self._facts.get("total_parameter_size_bytes", 0),
        }

    def last(self) -> dict[str, Any]:
        """The last steps, in the form of `.rank_N.now`."""
        in_calls = self._clock.call_waits_us
        waits = {step: us + in_calls.get(step, 0.0) for step, us in list(self._waits.items())}
        steps = busbw_rank_now.last_steps(self._starts, waits)
        return {**steps, "timed": len(self._waits), "computed_us": dict(self._computed_us)}

    def _durations_us(self) -> list[float]:
        starts = self._starts
        return [(starts[at] - starts[at - 1]) / NS_PER_US for at in range(1, len(starts))]


def _parameters(model: Any) -> list[Any]:
    """Those that DDP exchanges, in the order of its indices."""
    return [parameter for parameter in model._module_parameters if parameter.requires_grad]


def _shapes(model: Any, buckets: str) -> list[list[list[int]]]:
    """The shapes of the parameters in each bucket, of which DDP writes the indices.

    It sends complex numbers as pairs of real ones.
    """
    shapes = [
        [*parameter.shape, 2] if parameter.is_complex() else list(parameter.shape)
        for parameter in _parameters(model)
    ]
    written = filter(None, buckets.split(","))
    return [_chosen(shapes, bucket.split()) for bucket in written]


def _chosen(shapes: list[list[int]], indices: list[str]) -> list[list[int]]:
    return [shapes[int(index)] for index in indices]


class Recorder:
    """Watches the import of DDP and of process groups, and writes the files."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._steps: DdpSteps | None = None
        self._writer: threading.Thread | None = None
        self._writing = threading.Lock()
        self._pace = busbw_rank_now.DumpPace()
        self._phases = busbw_phases.Phases()
        self._calls = busbw_rank_steps.CallWaits(self._write_failed)
        self._optimizer_steps = busbw_rank_steps.OptimizerSteps(self._calls)
        self.watched = {
            GROUPS_MODULE: self._watch_groups,
            DDP_MODULE: self._watch_models,
            OPTIMIZER_MODULE: self._watch_optimizers,
            AUTOGRAD_MODULE: self._calls.watch_backward,
            **self._phases.watched,
            **busbw_graphs.Graphs(folder).watched,
        }
        self._failed: set[str] = set()  # files that could not be written, which was said

    def _watch_groups(self, module: Any) -> None:
        self._after(module, "init_process_group", lambda *_: self._start_writer())

    def _watch_optimizers(self, module: Any) -> None:
        with contextlib.suppress(Exception):
            module.register_optimizer_step_post_hook(self._optimizer_steps.note)

    def _watch_models(self, module: Any) -> None:
        ddp = module.DistributedDataParallel
        self._after(ddp, "__init__", lambda model, *_: self._record(model, ddp))

    def _after(self, owner: Any, name: str, then: Callable[..., None]) -> None:
        """Call `then` after each call of a function, with its arguments."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            # A training is never disturbed by what cannot be recorded.
            with contextlib.suppress(Exception):
                then(*args)
            return result

        setattr(owner, name, call)

    def _start_writer(self) -> None:
        """Write from now on. The rank has threads of its own by now, those of its group."""
        if self._writer is None:
            busbw_rank_now.note_group()
            busbw_exit.call_at_end(self.write_at_exit)
            self._calls.start()
            self._writer = threading.Thread(target=self._keep_writing, daemon=True)
            self._writer.start()

    def _keep_writing(self) -> None:
        while True:
            time.sleep(busbw_rank_now.WRITE_EVERY_S)
            self._write_now()
            if self._pace.is_due():
                with self._pace.timed():
                    self.write()

    def _record(self, model: Any, ddp: Any) -> None:
        """Record the steps of the first model; of another one, if that went without a step."""
        if self._steps is not None and not self._steps.unused:
            return
        if getattr(
            model, "_use_python_reducer", False
        ):  # DDP itself is compiled, and times nothing
            return
        if self._steps is None:
            self._watch_forwards(ddp)
        self._steps = DdpSteps(model, self._limit, self._calls)

    def _watch_forwards(self, ddp: Any) -> None:
        """Call the steps' `begin` in each forward.

        On the class, so that pickles of a model do not have it. torch.compile breaks its graph in
        DDP's own `_pre_forward`; in place of that it breaks it here.
        """
        import torch

        original: Callable[..., Any] = ddp._pre_forward

        @functools.wraps(original)
        def pre_forward(model: Any, *args: Any, **options: Any) -> Any:
            begun = self._steps is not None and self._steps.begin(model)
            self._phases.note_forward(training=model.training and torch.is_grad_enabled())
            inputs = original(model, *args, **options)
            if begun and self._steps is not None:
                self._steps.take_facts()
            return inputs

        ddp._pre_forward = torch.compiler.disable(pre_forward)
        ddp._sync_buffers = self._calls.timed(ddp._sync_buffers)

    def write_at_exit(self) -> None:
        """Write all files for the last time, that of its process if it had a process group."""
        self.write()
        if self._writer is not None:
            self._write_now(ended=True)

    def _write_failed(self) -> None:
        """Write that a call failed: a launcher may end the process before it comes to its end."""
        self._pace.dumped = busbw_rank_now.dump(self._world())
        self._write_now(is_dumped=True)

    def _write_now(self, *, ended: bool = False, is_dumped: bool = False) -> None:
        with contextlib.suppress(Exception):
            rank, world, launch = self._rank(), self._world(), os.environ.get(LAUNCH, "")
            of_ddp = None if self._steps is None or self._steps.unused else self._steps
            steps = (of_ddp or self._optimizer_steps).last() | self._phases.now()
            now = self._pace.now(rank, world, launch, steps, ended=ended, is_dumped=is_dumped)
            self._save(f".rank_{rank}.now", now)

    def write(self) -> None:
        """Write both files of a rank that has communicated; each also without the other."""
        rank = self._rank()
        if rank is None or "torch.distributed" not in sys.modules:
            return
        with self._writing:
            self._write(rank)

    def _write(self, rank: int) -> None:
        with contextlib.suppress(Exception):
            self._pace.dumped = busbw_rank_now.dump(self._world())
            if self._pace.dumped:
                self._save(f"rank_{rank}.fr", pickle.dumps(self._pace.dumped))
        with contextlib.suppress(Exception):
            if self._steps is not None:
                self._save(f"rank_{rank}.ddp", json.dumps(self._steps.record()).encode())
        with contextlib.suppress(Exception):
            if rank == 0 and any(Path(self._folder).glob("rank_0.*")):
                self._save(LAUNCH_FILE, os.environ.get(LAUNCH, "").encode())

    def _world(self) -> int | None:
        world: int | None = self._steps.world if self._steps else None
        return world or busbw_rank_now.world_of_process()

    def _rank(self) -> int | None:
        of_ddp, of_process = self._steps, busbw_rank_now.rank_of_process
        rank: int | None = of_process() if of_ddp is None else of_ddp.rank
        return rank

    def _save(self, name: str, data: bytes) -> None:
        path = Path(self._folder, name)
        part = path.with_name(f".{name}.part")
        try:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
            # only for its owner: names of tensors and paths say more than others should know
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            if name not in self._failed:
                self._failed.add(name)
                sys.stderr.write(f"busbw: {path} cannot be written: {error.strerror}\n")


def pass_on() -> None:
    """Import the sitecustomize that Python would have imported without this one."""
    own = Path(__file__).resolve().parent
    kept, module = sys.path[:], sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in kept if Path(entry or ".").resolve() != own]
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if module is not None:
            sys.modules["sitecustomize"] = module
        if error.name != "sitecustomize":  # in the user's, which Python then reports
            raise
    finally:
        sys.path[:] = kept


def call_named(_torch: object) -> None:
    """Call the function that BUSBW_WITH_TORCH names."""
    module, _, function = os.environ[WITH_TORCH].partition(":")
    try:
        call = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise SystemExit(
            f"error: {sys.executable} cannot import {module}: {error}\n\n"
            "hint: install busbw-accel for the Python of your training"
        ) from error
    call()


if FOLDER in os.environ:
    recorder = Recorder(os.environ[FOLDER], int(os.environ.get(STEPS) or 0))
    busbw_import_watch.ImportWatch(recorder.watched)
    busbw_exit.call_at_end(recorder.write_at_exit)
if WITH_TORCH in os.environ:
    busbw_import_watch.ImportWatch({"torch": call_named})
pass_on()
