"""Records a PyTorch training from inside its ranks.

Python imports this file when it starts, because `busbw capture` puts its folder first in
PYTHONPATH. It uses the standard library alone, since the rank's Python may lack busbw, and passes
on to the sitecustomize of the user, if there is one.

Into the folder BUSBW_CAPTURE each rank writes two files when it exits:

* `rank_N.fr`: the dump of PyTorch's Flight Recorder, which has the calls of Gloo too
* `rank_N.ddp`: JSON with the steps of its first model under DistributedDataParallel

With BUSBW_CAPTURE_STEPS=N the training exits with code 0 when the model begins step N + 1.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.util
import json
import os
import pickle
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER, STEPS = "BUSBW_CAPTURE", "BUSBW_CAPTURE_STEPS"
DDP_MODULE = "torch.nn.parallel.distributed"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
NS_PER_US = 1e3
DUMPS = ("_dump_nccl_trace", "_dump_fr_trace")  # of PyTorch, by kind of device


class DdpSteps:
    """The steps of one model under DistributedDataParallel."""

    def __init__(self, model: Any, limit: int) -> None:
        import torch.distributed as dist

        self._limit = limit
        self._model = model
        self._starts: list[int] = []
        self._waits: dict[int, float] = {}  # by number of the step
        self.rank, self._world = dist.get_rank(), dist.get_world_size()
        self._facts: dict[str, Any] = {}
        if next(model.parameters()).device.type == "cpu":
            # DDP times each step; on a GPU that would make the host wait, so there some.
            model._set_ddp_runtime_logging_sample_rate(1)
        model.register_forward_pre_hook(self._begin)

    def _begin(self, model: Any, _inputs: object) -> None:
        """A step begins. SystemExit when enough steps were recorded."""
        import torch

        if not (model.training and model.require_backward_grad_sync and torch.is_grad_enabled()):
            return
        self._take_facts()
        self._starts.append(time.perf_counter_ns())
        if self._limit and len(self._starts) > self._limit:
            if self.rank == 0:
                sys.stderr.write(
                    f"busbw: {self._limit} steps are recorded; the training ends here\n"
                )
            raise SystemExit(0)

    def _take_facts(self) -> None:
        """Read what DDP says about itself and about its last timed step."""
        facts = self._model._get_ddp_logging_data()
        waited = facts.get("backward_comm_time", 0) - facts.get(
            "backward_compute_comm_overlap_time", 0
        )
        if facts.get("iteration") and waited >= 0:
            self._waits[facts["iteration"]] = waited / NS_PER_US
        self._facts = facts

    def record(self) -> dict[str, Any]:
        """What the file has."""
        shapes = [list(parameter.shape) for parameter in self._parameters()]
        return {
            "version": 1,
            "rank": self.rank,
            "world": self._world,
            "host": platform.node(),
            "steps_us": self._durations_us(),
            "waits_us": [self._waits[step] for step in sorted(self._waits)],
            "bucket_mb": self._facts.get("bucket_cap_bytes", 0) / 2**20,
            "hook": self._facts.get("comm_hook", ""),
            "shapes": [[shapes[index] for index in bucket] for bucket in self._buckets()],
        }

    def _durations_us(self) -> list[float]:
        starts = self._starts
        return [(starts[at] - starts[at - 1]) / NS_PER_US for at in range(1, len(starts))]

    def _parameters(self) -> list[Any]:
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def _buckets(self) -> list[list[int]]:
        """The indices of the parameters in each bucket."""
        text = self._facts.get("rebuilt_per_bucket_param_indices", "")
        return [[int(word) for word in bucket.split()] for bucket in text.split(",") if bucket]


class Recorder:
    """Watches the import of DDP, and writes the files at exit."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._steps: DdpSteps | None = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Part of the import system: DDP's module, whose class is then watched."""
        if name != DDP_MODULE:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            self._watch(module.DistributedDataParallel)

        spec.loader.exec_module = exec_module
        return spec

    def _watch(self, ddp: Any) -> None:
        original: Callable[..., None] = ddp.__init__

        @functools.wraps(original)
        def init(model: Any, *args: Any, **options: Any) -> None:
            original(model, *args, **options)
            if self._steps is None:
                # A training is never disturbed by what cannot be recorded.
                with contextlib.suppress(Exception):
                    self._steps = DdpSteps(model, self._limit)

        ddp.__init__ = init

    def write(self) -> None:
        """Write both files of a rank that has communicated; each also without the other."""
        rank = self._rank()
        if rank is None or "torch.distributed" not in sys.modules:
            return
        with contextlib.suppress(Exception):
            dump = self._dump()
            if dump:
                self._save(f"rank_{rank}.fr", dump)
        with contextlib.suppress(Exception):
            if self._steps is not None:
                self._save(f"rank_{rank}.ddp", json.dumps(self._steps.record()).encode())

    def _dump(self) -> bytes:
        """The Flight Recorder's dump of NCCL's calls, or of Gloo's; b"" without a call."""
        import torch

        for name in DUMPS:
            make = getattr(torch._C._distributed_c10d, name, None)
            dump: bytes = make(True, False, False) if make else b""  # without stack traces
            if dump and pickle.loads(dump).get("entries"):
                return dump
        return b""

    def _rank(self) -> int | None:
        if self._steps is not None:
            rank: int = self._steps.rank
            return rank
        values = [os.environ[name] for name in RANK_VARIABLES if name in os.environ]
        return int(values[0]) if values else None

    def _save(self, name: str, data: bytes) -> None:
        path = Path(self._folder, name)
        part = path.with_name(f"{name}.part")
        part.write_bytes(data)
        part.replace(path)


def pass_on() -> None:
    """Import the sitecustomize that Python would have imported without this one."""
    own = Path(__file__).resolve().parent
    kept, module = sys.path[:], sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in kept if Path(entry or ".").resolve() != own]
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if module is not None:
            sys.modules["sitecustomize"] = module
    finally:
        sys.path[:] = kept


if FOLDER in os.environ:
    recorder = Recorder(os.environ[FOLDER], int(os.environ.get(STEPS) or 0))
    sys.meta_path.insert(0, recorder)
    atexit.register(recorder.write)
pass_on()
