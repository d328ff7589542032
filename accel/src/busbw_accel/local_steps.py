"""The frontend for local steps: ranks train by themselves, and every N optimizer steps the change
of their parameters is exchanged (see `busbw_accel.outer_optimizer`).
"""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from busbw.core.errors import BusbwError, UsageError
from busbw_accel.attachment import Attachment
from busbw_accel.codecs.base import is_finite, ring_bytes
from busbw_accel.comm_worker import CommWorker
from busbw_accel.outer_optimizer import OuterBucket, fragments_of, load, parameters_of, renew, save

# What a rank reports with each exchange; the last column is one of the faults.
_STEPS, _FRAGMENT, _CHECKSUM, _FAULT = range(4)
_NOT_FINITE, _CHANGED = 1, 2
_ALL = -1  # in place of a fragment: `exchange_now`


@dataclass(slots=True)
class _Exchange:
    """A running exchange of some fragments, begun after this many steps."""

    step: int
    numbers: list[int]
    buckets: list[OuterBucket]
    changes: list[torch.Tensor]  # at the end the averages
    # The reports of all ranks, and whether the averages are finite; None once they were checked.
    reports: torch.futures.Future[torch.Tensor] | None = None


class LocalSteps(Attachment):
    """A DDP model whose ranks train by themselves for `every` optimizer steps.

    `steps` counts optimizer steps. A step that a GradScaler skips does not count.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        worker: CommWorker,
        optimizer: torch.optim.Optimizer,
        rows: CommWorker | None,
    ) -> None:
        """`rows`: averages gradients inside a host, in two dimensions."""
        self._module, self._rows = model.module, rows
        self._fragments = fragments_of(model.module, worker.settings)
        lengths = {
            name: shape.numel()
            for bucket in self._buckets
            for name, shape in zip(bucket.names, bucket.shapes, strict=True)
        }
        super().__init__(worker, lengths)
        self._exchanged = [0] * len(self._fragments)  # after which step each fragment was, last
        self._running: _Exchange | None = None
        self._begun = False
        self._model = weakref.ref(model)  # it keeps this object, as its hook
        model.broadcast_buffers = False  # from rank 0 in each forward; they are averaged instead
        if rows is None:
            # DDP would copy each gradient into a bucket and back.
            model.require_backward_grad_sync = False
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    @property
    def _buckets(self) -> list[OuterBucket]:
        return [bucket for fragment in self._fragments for bucket in fragment]

    def exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's hook: the gradient as it is, or its average over the ranks of the host.

        The former only where the training itself sets `require_backward_grad_sync`.
        """
        self.worker.ready()
        flat = bucket.buffer()
        if self._rows is None:
            ready: torch.futures.Future[torch.Tensor] = torch.futures.Future(
                devices=[flat.device] if flat.is_cuda else None
            )
            ready.set_result(flat.coalesce() if flat.is_sparse else flat)
            return ready
        if flat.is_sparse:
            return self._rows.average_sparse(flat)
        self.worker.traffic.inside += ring_bytes(flat.nbytes, self._rows.mesh.world.size)
        return self._rows.average(flat, ["gradient"], [(flat.numel(),)])

    def _before_step(self, *_: Any) -> None:
        if not self._begun:  # parameters may have been loaded since attach
            self._begin_anew()

    def _begin_anew(self) -> None:
        renew(self._buckets, self._module)
        parameters = parameters_of(self._module)
        for bucket in self._buckets:
            if bucket.names[0] in parameters:  # the first forward may have changed the buffers
                bucket.restart()
        self._begun = True

    def _after_step(self, *_: Any) -> None:
        settings, model = self.settings, self._model()
        if model is not None and model._join_config.enable:
            raise UsageError(
                f"in Join, a rank that has ended takes no part in exchanges, and"
                f" every={settings.every} needs all ranks",
                "give each rank as many steps, and leave out Join",
            )
        self.steps += 1
        if self._running is not None and self.steps == self._running.step + settings.delay:
            self._finish(self._running)
        if self.steps % settings.period == 0:
            number = (self.steps // settings.period - 1) % settings.fragments
            running = self._begin([number], number)
            if not settings.delay:
                self._finish(running)

    def exchange_now(self) -> None:
        """Exchange all that was not exchanged yet.

        All ranks then have the same parameters, as a checkpoint of the trained model needs. Every
        rank must call it, after the same step.

        Raises:
            BusbwError: as of an exchange after a step.
            UsageError: there was no step of the optimizer that attach has.
        """
        if not self.steps:
            raise UsageError(
                "the optimizer that attach has made no step, so there is nothing to exchange",
                "give attach the optimizer whose step() the training calls",
            )
        if self._running is not None:
            self._finish(self._running)
        numbers = [number for number, step in enumerate(self._exchanged) if step < self.steps]
        self._finish(self._begin(numbers, _ALL))
        self._take_outer()

    def _take_outer(self) -> None:
        """Replace this rank's parameters by the outer ones."""
        renew(self._buckets, self._module)
        for bucket in self._buckets:
            bucket.mix(1.0)

    def _begin(self, numbers: list[int], fragment: int) -> _Exchange:
        """Start to average the changes of fragments. A rank with a fault takes part too, so that
        all ranks learn of it.
        """
        changed = renew(self._buckets, self._module)
        buckets = [bucket for number in numbers for bucket in self._fragments[number]]
        changes = [
            torch.zeros_like(bucket.outer) if changed else bucket.change() for bucket in buckets
        ]
        self._running = running = _Exchange(self.steps, numbers, buckets, changes)
        report = self._report(running, fragment, changed)
        running.reports = self.worker.run(report, lambda: self._average_all(report, running))
        return running

    def _report(self, running: _Exchange, fragment: int, changed: str) -> torch.Tensor:
        device = self._buckets[0].outer.device
        report = torch.tensor([running.step, fragment, 0, 0], device=device)
        for bucket in running.buckets:
            report[_CHECKSUM] += bucket.outer.view(torch.int32).sum()
        finite = _all_finite(running.changes, device)
        report[_FAULT] = _CHANGED if changed else ~finite * _NOT_FINITE
        return report

    def _average_all(self, report: torch.Tensor, running: _Exchange) -> torch.Tensor:
        """Runs in the worker."""
        worker, world = self.worker, self.worker.mesh.world
        worker.step = (running.step - 1) // self.settings.every  # codecs have a warm-up
        reports = world.all_gather(report)
        # Exchanges of other fragments have other sizes, with which NCCL would wait forever.
        if _are_equal(reports.tolist(), _STEPS, _FRAGMENT):
            for bucket, change in zip(running.buckets, running.changes, strict=True):
                if bucket.dense:
                    world.average(change)
                    sent = ring_bytes(change.nbytes, world.size)
                    worker.traffic.add_across(world.ring(sent))
                    worker.traffic.buckets += 1
                else:
                    worker.exchange(change, bucket.names, bucket.shapes)
        finite = _all_finite(running.changes, reports.device).long()
        return torch.cat([reports.flatten(), finite[None]])

    def _finish(self, running: _Exchange) -> None:
        """Wait for an exchange, and apply it if it is right on every rank."""
        self._running = None
        self._check(running)
        renew(self._buckets, self._module)  # if they changed, the next exchange says so
        for bucket, change in zip(running.buckets, running.changes, strict=True):
            bucket.step(change)
            bucket.mix(bucket.share)
        for number in running.numbers:
            self._exchanged[number] = running.step

    def _check(self, running: _Exchange) -> None:
        """Wait for an exchange, and raise on every rank if a rank has reported a fault."""
        if running.reports is None:
            return
        try:
            *words, finite = running.reports.wait().tolist()
        except RuntimeError:
            self.worker.ready()  # raises the error itself
            raise
        reports = [words[at : at + _FAULT + 1] for at in range(0, len(words), _FAULT + 1)]
        message, hint = self._fault(reports, running.step)
        if not message and not finite:
            self.worker.check()
            message = f"the average of all ranks after step {running.step} is not finite"
            hint = "use wire=bf16 or fp32, which have the range for it"
        if message:
            raise BusbwError(f"{message}; nothing was applied", hint)
        running.reports = None

    def _fault(self, reports: list[list[int]], step: int) -> tuple[str, str]:
        """What is wrong with an exchange and a hint; '' if nothing is."""
        mesh = self.worker.mesh
        for rank, report in enumerate(reports):
            if report[_FAULT] == _CHANGED:
                name = renew(self._buckets, self._module)
                which = f"'{name}'" if name and rank == mesh.world.rank else "a parameter"
                return (
                    f"{mesh.name(rank)}: {which} was frozen, added, removed, or has another shape"
                    f" or type, since attach",
                    "close() what attach returned, and attach to a new DistributedDataParallel of"
                    " the changed model",
                )
        if not _are_equal(reports, _STEPS, _FRAGMENT):
            counts = ", ".join(
                f"{mesh.name(rank)}: {report[_STEPS]}" for rank, report in enumerate(reports)
            )
            return (
                f"ranks exchange after different numbers of optimizer steps ({counts})",
                "make the same number on each rank, by attached.steps where a GradScaler skips"
                " some, or call exchange_now after the same step",
            )
        for rank, report in enumerate(reports):
            if report[_FAULT] == _NOT_FINITE:
                return (
                    f"{mesh.name(rank)}: its parameters are not finite after step {step}",
                    "load the last checkpoint, and lower the learning rate",
                )
            if report[_CHECKSUM] != reports[0][_CHECKSUM]:
                return (
                    f"{mesh.name(rank)}: its outer parameters are not those of {mesh.name(0)}",
                    "load the same checkpoint on every rank, with the state of attach",
                )
        return "", ""

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """As of `Attachment`. The outer optimizer is put back at the end."""
        before = save(self._buckets)
        rows = self._rows.silent() if self._rows else contextlib.nullcontext()
        with self.worker.silent(), rows:
            yield
        self._running = None
        load(self._buckets, before)
        self._take_outer()

    def close(self) -> None:
        """As of `Attachment`. What is not exchanged yet is lost: see `exchange_now`."""
        for handle in self._handles:
            handle.remove()
        if (model := self._model()) is not None:
            model.require_backward_grad_sync = True  # the next backward says that this is closed
        super().close()
        if self._rows is not None:
            self._rows.close()

    def state_dict(self) -> dict[str, Any]:
        """As of `Attachment`, with the outer optimizer and the exchange that is running.

        The parameters of the model and its optimizer differ between ranks too: each rank saves its
        own.
        """
        state, running = super().state_dict(), self._running
        saved: dict[str, Any] | None = None
        if running is not None:
            self._check(running)
            averages = [change.to("cpu", copy=True) for change in running.changes]
            saved = {"step": running.step, "numbers": running.numbers, "averages": averages}
        outer = save(self._buckets)
        return state | {"outer": outer, "exchanged": list(self._exchanged), "running": saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._load_outer(state)

    def _load_outer(self, state: Mapping[str, Any]) -> None:
        """What is the same on every rank."""
        load(self._buckets, state["outer"])
        self._begun, self.steps, self._running = True, state["steps"], None
        self._exchanged = [self.steps] * len(self._fragments)
        if state["settings"] != self.settings.describe():
            return
        self._exchanged, saved = list(state["exchanged"]), state["running"]
        if saved is not None:
            self._running = self._stopped(saved["step"], saved["numbers"])
            for change, average in zip(self._running.changes, saved["averages"], strict=True):
                change.copy_(average)

    def _stopped(self, step: int, numbers: list[int]) -> _Exchange:
        """An exchange that has ended, with room for its averages."""
        buckets = [bucket for number in numbers for bucket in self._fragments[number]]
        changes = [torch.zeros_like(bucket.outer) for bucket in buckets]
        return _Exchange(step, numbers, buckets, changes)

    def load_or_receive(self, state: Mapping[str, Any] | None) -> None:
        """Continue where ranks have lost their state, or where their number has changed.

        `state`: of `state_dict`, or None on a rank that has none. A rank with the newest state of
        its own continues from it. The others get the outer optimizer of the first such rank, and
        begin with its parameters. If no rank has a state, nothing happens. Every rank must call it.
        """
        if state is not None:
            self.check_kind(state)
        world = self.worker.mesh.world
        own = -1 if state is None else state["steps"]
        found: list[int] = [own] * world.size
        dist.all_gather_object(found, own, group=world.group)
        newest = max(found)
        if newest < 0:
            return
        place = (dist.get_world_size(), dist.get_rank())
        exact = own == newest and state is not None and (state["ranks"], state["rank"]) == place
        source = found.index(newest)
        if state is not None and exact:
            self.load_state_dict(state)
        elif state is not None and world.rank == source:
            self._load_outer(state)
        self._receive(dist.get_process_group_ranks(world.group)[source])
        if not exact:
            self.reset_residual()
            self._take_outer()

    def _receive(self, source: int) -> None:
        """Get the outer optimizer from a rank, by its number in the job."""
        group, running = self.worker.mesh.world.group, self._running
        words: list[Any] = [
            self.steps,
            self._exchanged,
            running and (running.step, running.numbers),
        ]
        dist.broadcast_object_list(words, source, group=group)
        self.steps, self._exchanged, at = words[0], list(words[1]), words[2]
        if dist.get_rank() != source:
            self._running = self._stopped(*at) if at else None
        flats = [flat for bucket in self._buckets for _, flat in bucket.states()]
        for flat in [*flats, *(self._running.changes if self._running else [])]:
            dist.broadcast(flat, source, group=group)
        self._begun = True


def _all_finite(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Whether all elements are finite, on the device."""
    finite = [is_finite(tensor) for tensor in tensors]
    return torch.stack([torch.ones((), device=device).bool(), *finite]).all()


def _are_equal(reports: list[list[int]], *columns: int) -> bool:
    return all(report[at] == reports[0][at] for report in reports for at in columns)
