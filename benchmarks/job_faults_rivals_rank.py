"""Hooks of other tools in a rank of `job_faults.py --rivals` (job_faults_rivals.py says which)."""

import contextlib
import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

RIVALS = "JOB_FAULTS_RIVALS"  # set for ranks that have the hooks
REPORTS, DUMPS, ASKED = "nvrx_reports.jsonl", "fr", "fr_asked"
PREFIX = "_dump_"  # of a dump's file, followed by its rank
REPORT_STEPS = 100
PACKAGES = ("nvidia_resiliency_ext.attribution.straggler", "nvidia_resiliency_ext.straggler")  # 0.4


def attach(folder: Path, rank: int, steps: Any) -> None:
    """Hook into a rank; `steps` is its job_faults_rank.Steps, which is patched already."""
    import torch

    if not torch.cuda.is_available():
        Thread(target=_dump_when_asked, args=(folder, rank), daemon=True).start()
    with contextlib.suppress(ImportError):
        _Sections(folder, rank).attach(steps)


def _dump_when_asked(folder: Path, rank: int) -> None:
    """Write Gloo's dump when asked, as NCCL does by its pipe."""
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_fr_trace", None)
    asked = 0.0
    while dump:
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            now = (folder / ASKED).stat().st_mtime
            if now != asked:
                _write_dump(folder, rank, dump())
            asked = now


def _write_dump(folder: Path, rank: int, content: bytes) -> None:
    import pickle

    dump = pickle.loads(content)
    entries, groups = dump.get("entries"), dump["pg_config"]
    if not entries:
        return
    if "" in groups:  # Gloo's default group has no name here, but has one in the entries
        name, description = entries[0]["process_group"]
        groups[name] = dict(groups.pop(""), name=name, desc=description)
    path = folder / f"dump_{rank}"
    path.write_bytes(pickle.dumps(dump))
    path.replace(folder / DUMPS / f"{PREFIX}{rank}")


class _NoKernels:
    """In place of CUPTI's manager, where there are no GPUs."""

    def __init__(self, **_: Any) -> None:
        self.get_results: Callable[[], dict[str, Any]] = dict

    def __getattr__(self, _: str) -> Callable[[], None]:
        return lambda: None


class _Sections:
    """nvrx's straggler detection in a training that does not know of it."""

    def __init__(self, folder: Path, rank: int) -> None:
        import torch

        straggler = _straggler()
        if not torch.cuda.is_available():
            straggler.CuptiManager = _NoKernels
            torch.cuda.synchronize = lambda *_: None
        self._detector = straggler.Detector
        self._file = folder / REPORTS if rank == 0 else None
        self._optimizer: Any = None
        self._count = 0

    def attach(self, steps: Any) -> None:
        """Open sections around what the training calls."""
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from torch.optim import optimizer
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._wrap(_BaseDataLoaderIter, "__next__", "data_loading", profile_cuda=False)
        self._wrap(DistributedDataParallel, "forward", "fwd")
        self._wrap(torch.Tensor, "backward", "bwd")
        self._wrap(steps, "compute", "compute")
        optimizer.register_optimizer_step_post_hook(self._after_step)

    def _wrap(self, owner: Any, name: str, section: str, *, profile_cuda: bool = True) -> None:
        original = getattr(owner, name)

        def call(*words: Any, **options: Any) -> Any:
            if not self._detector.initialized:
                return original(*words, **options)
            with self._detector.detection_section(section, profile_cuda=profile_cuda):
                return original(*words, **options)

        setattr(owner, name, call)

    def _after_step(self, optimizer: Any, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
            self._detector.initialize(scores_to_compute="all", gather_on_rank0=True)
        if optimizer is not self._optimizer:
            return
        self._count += 1
        if self._count % REPORT_STEPS == 0:
            report = self._detector.generate_report()
            if self._file:
                self._note(report)

    def _note(self, report: Any) -> None:
        found = report.identify_stragglers()
        line: dict[str, Any] = {
            "at": time.monotonic(),
            "scores": report.section_relative_perf_scores,
            "gpu_scores": report.gpu_relative_perf_scores,
        }
        for way in ("relative", "individual"):
            sections = found[f"straggler_sections_{way}"].items()
            line[way] = {name: [one.rank for one in ones] for name, ones in sections}
            line[way]["gpu"] = [one.rank for one in found[f"straggler_gpus_{way}"]]
        assert self._file is not None
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _straggler() -> Any:
    """Its module; ImportError without nvidia-resiliency-ext."""
    for package in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):
            return import_module(f"{package}.straggler")
    raise ImportError("nvidia-resiliency-ext is not installed")
