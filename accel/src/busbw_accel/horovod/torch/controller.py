"""The thread that matches operations of ranks by name and runs them in the same order on all ranks.

Each cycle is one small all-reduce: each rank sends a bit for each cached operation that it is ready
for, and the AND of all ranks selects the operations to run. Only if a rank has an uncached request
do ranks exchange full requests.
"""

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from busbw_accel.heartbeat import Heartbeat
from busbw_accel.horovod.torch.environment import Options
from busbw_accel.horovod.torch.errors import HorovodInternalError, Refused, Shutdown
from busbw_accel.horovod.torch.executor import Executor, Operation
from busbw_accel.horovod.torch.requests import (
    Cache,
    Key,
    OperationKind,
    Request,
    RequestTable,
    Response,
)
from busbw_accel.horovod.torch.timeline import Timeline
from busbw_accel.mesh import Mesh

# Flags in the first byte. A rank clears the bits of what it requests, so the AND has a 0 if any
# rank requests it.
_UNKNOWN, _LEAVE = 1, 2
_LOST = "busbw_accel.horovod/lost"
# Without a pause the thread would hold the GIL and slow the training.
_MIN_PAUSE_S = 1e-4
_LEAVE_LIMIT = timedelta(seconds=10)


@dataclass(slots=True)
class ExchangeCounts:
    """How often ranks have exchanged messages to match operations."""

    exchanges: int = 0  # of bits
    negotiations: int = 0  # in full


class Controller:
    """Matches this process's operations with those of the other ranks."""

    def __init__(
        self, mesh: Mesh, executor: Executor, options: Options, timeline: Timeline, times: int = 0
    ) -> None:
        """`times`: jobs that this process has joined so far. It is the same on all ranks."""
        self._times = times
        self._heartbeat = Heartbeat(mesh)
        self._mesh, self._executor = mesh, executor
        self._options, self._timeline = options, timeline
        self._rank, self._size = mesh.world.rank, mesh.world.size
        self._table, self._cache = RequestTable(), Cache(options.cache, self._rank)
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._operations: dict[Key, Operation] = {}
        self._announced: set[Key] = set()  # used by the thread only
        self._leaving = False
        self._ended: HorovodInternalError | None = None
        self.counts = ExchangeCounts()
        self._thread = threading.Thread(target=self._work, name="busbw-horovod", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> None:
        """Run the operation once all ranks of its process set have submitted it.

        Raises:
            Refused: an operation with that name is still running.
            HorovodInternalError: the job has ended.
        """
        with self._lock:
            if self._ended is not None:
                raise HorovodInternalError(str(self._ended)) from self._ended
            if operation.request.key in self._operations:
                raise Refused(
                    f"an operation named {operation.request.name} is still running",
                    "give each its own name, or synchronize first",
                )
            self._operations[operation.request.key] = operation
            # Without a reference to the operation: a cycle would keep its tensors, and the groups,
            # until the garbage collector runs.
            operation.handle.before = functools.partial(self._forget, operation.request.key)
        self._wake.set()

    def stop(self) -> None:
        """End the job on all ranks. Pending operations fail."""
        self._leaving = True
        self._wake.set()
        self._thread.join()
        self._heartbeat.stop()
        if self._size > 1 and isinstance(self._ended, Shutdown):
            self._leave_together()

    def _leave_together(self) -> None:
        """Wait until all ranks know that all leave.

        Closing connections earlier could lose data that others have not read. It uses the store,
        which rank 0 or the launcher hosts. If the store is gone, all ranks have left.
        """
        with contextlib.suppress(Exception):
            store = dist.PrefixStore(
                f"busbw_accel.horovod/leave/{self._times}", distributed_c10d._get_default_store()
            )
            if store.add("ranks", 1) == self._size:
                store.set("all", "1")
            store.wait(["all"], _LEAVE_LIMIT)
            # The host of the store leaves last.
            if self._rank == 0:
                store.wait([f"left/{rank}" for rank in range(1, self._size)], _LEAVE_LIMIT)
            else:
                store.set(f"left/{self._rank}", "1")

    @property
    def lost(self) -> bool:
        """Whether the job has failed. Then running operations of other ranks may never end."""
        return self._ended is not None and not isinstance(self._ended, Shutdown)

    def _forget(self, key: Key) -> None:
        """Allow the name to be used again."""
        with self._lock:
            self._operations.pop(key, None)

    def _work(self) -> None:
        try:
            while not self._cycle():
                # A single rank waits only for its own requests.
                pause_s = None
                if self._size > 1:
                    pause_s = max(self._options.cycle_s, _MIN_PAUSE_S)
                self._wake.wait(pause_s)
                self._wake.clear()
            self._end(Shutdown())
        except Exception as error:  # noqa: BLE001 - set on all pending operations
            self._end(self._explain(error))

    def _cycle(self) -> bool:
        """Exchange once and run the operations that are ready.

        Returns whether a rank is leaving.
        """
        self._timeline.cycle()
        with self._lock:
            waiting = {
                key: operation
                for key, operation in self._operations.items()
                if key not in self._announced
            }
        bits, unknown = self._bits(waiting)
        bits, unknown, leaves = self._exchange(bits, unknown, self._leaving)
        answers = list(self._cache.take(bits))
        if unknown:
            cached = {answer.key for answer in answers}
            fresh = [operation.request for key, operation in waiting.items() if key not in cached]
            answers += self._negotiate(fresh)
        if answers:
            self._answer(answers)
        self._warn()
        return leaves

    def _bits(self, waiting: dict[Key, Operation]) -> tuple[int, bool]:
        """Cache slots that this rank is ready for, and whether it has requests without a slot."""
        bits, unknown = self._cache.foreign, False
        joined, now_s = bool(self._table.joined), time.monotonic()
        patience_s = min(self._options.stall_warn_s, self._options.stall_fail_s)
        for key, operation in waiting.items():
            slot = self._cache.slot(operation.request)
            # Requests that others have sent in full are sent in full. So are overdue requests, so
            # that a warning can name missing ranks.
            overdue = now_s - operation.since_s > patience_s
            if slot is None or joined or key in self._table or overdue:
                unknown = True
            else:
                bits |= 1 << slot
        return bits, unknown or bool(self._overdue())

    def _exchange(self, bits: int, unknown: bool, leaves: bool) -> tuple[int, bool, bool]:
        """Exchange the bits of all ranks.

        Returns their AND, whether any rank has an uncached request, and whether any is leaving.
        """
        length = (self._cache.slots + 7) // 8
        if self._size > 1:
            flags = 0xFF & ~(_UNKNOWN * unknown) & ~(_LEAVE * leaves)
            data = bytearray([flags]) + bytearray(bits.to_bytes(length, "little"))
            message = torch.frombuffer(data, dtype=torch.uint8)
            dist.all_reduce(message, op=dist.ReduceOp.BAND, group=self._mesh.world.group)
            flags, bits = int(message[0]), int.from_bytes(bytes(message[1:].tolist()), "little")
            unknown, leaves = not flags & _UNKNOWN, not flags & _LEAVE
        self.counts.exchanges += 1
        return bits, unknown, leaves

    def _negotiate(self, fresh: Sequence[Request]) -> list[Response]:
        """Exchange the full requests of all ranks. Returns the operations that are then ready."""
        self._announced.update(request.key for request in fresh)
        gathered: list[tuple[Sequence[Request], list[Key]]] = [(fresh, self._overdue())]
        if self._size > 1:
            gathered = gathered * self._size
            dist.all_gather_object(gathered, (fresh, self._overdue()), group=self._mesh.world.group)
        self.counts.negotiations += 1
        for rank, (requests, _) in enumerate(gathered):
            for request in requests:
                self._table.add(rank, request)
        answers = self._table.take_ready(self._executor.members())
        for key in gathered[0][1]:  # rank 0's clock decides for all
            limit = f"within {self._options.stall_fail_s:g} s"
            failed = self._table.fail(key, f"{key[1]}: some ranks did not request it {limit}")
            if failed:
                answers.append(failed)
        return answers

    def _overdue(self) -> list[Key]:
        if self._rank != 0:
            return []
        return self._table.overdue(self._options.stall_fail_s, time.monotonic())

    def _answer(self, answers: Sequence[Response]) -> None:
        keys = {answer.key for answer in answers}
        own_operations = {
            key: operation for key, operation in self._operations.items() if key in keys
        }
        self._announced -= keys
        self._executor.run(answers, own_operations)
        members = self._executor.members()
        for answer in answers:
            if not answer.error and answer.request.kind == OperationKind.REMOVE_SET:
                self._cache.drop_set(answer.request.root)
            self._cache.put(answer, members.get(answer.key[0], ()))

    def _warn(self) -> None:
        if self._rank != 0:
            return
        members, least_s = self._executor.members(), self._options.stall_warn_s
        for stalled in self._table.stalled(members, least_s, time.monotonic()):
            missing = ", ".join(self._mesh.name(rank) for rank in stalled.missing)
            sys.stderr.write(
                f"busbw horovod: {stalled.key[1]} has waited {stalled.waited_s:.0f} s for"
                f" {missing}; it was submitted by ranks {', '.join(map(str, stalled.ready))}\n"
            )

    def _end(self, error: HorovodInternalError) -> None:
        with self._lock:
            self._ended = error
            pending = list(self._operations.values())
        for operation in pending:
            operation.handle.fail(error)

    def _explain(self, error: Exception) -> HorovodInternalError:
        """The error for a failed exchange. It names the lost ranks."""
        if isinstance(error, HorovodInternalError):
            return error
        lost = self._heartbeat.lost() if self._size > 1 else []
        alive = "all ranks are alive" if self._heartbeat.can_find_lost else "a rank may be lost"
        who = f"lost: {', '.join(lost)}" if lost else alive
        # Ranks that notice the failure late also see others leave, so the first finding counts.
        # Without the store, each rank uses its own finding.
        with contextlib.suppress(Exception):
            who = distributed_c10d._get_default_store().compare_set(_LOST, "", who).decode()
        return HorovodInternalError(
            f"an exchange failed at rank {self._rank} of {self._size}; {who} ({error})"
        )
