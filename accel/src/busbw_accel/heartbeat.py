"""Heartbeats in the rendezvous store, which show the lost ranks when an exchange has failed."""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import distributed_c10d

from busbw_accel.mesh import Mesh

# Seconds between the heartbeats of a rank, and seconds to wait for a heartbeat.
BEAT_S, PATIENCE_S = 1.0, 4.0
# torchrun restarts the ranks of a job with the store that has their entries.
_OWN = "busbw_accel/" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
_KEY = _OWN + "/alive/{}/{}"  # of a group and a rank
_FOUND = _OWN + "/lost/{}"  # of a group
_Answer = TypeVar("_Answer")


class Heartbeat:
    """Sends heartbeats of this process while the object lives, and checks those of other ranks."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.begun = 0  # exchanges, as the caller counts them; others read it in `behind`
        self._others: dict[int, int] = {}  # what the ranks had begun when `lost` was called
        self._store = _own_store()
        # Read now: the training may destroy its process groups before the last exchange has ended.
        self._group = _group_name(mesh)
        self._ranks = [] if self._store is None else dist.get_process_group_ranks(mesh.world.group)
        self._stopped = threading.Event()
        arguments = (weakref.ref(self), self._stopped, self._store, self._group)
        self._thread = threading.Thread(
            target=_beat, args=arguments, name="busbw-accel-pulse", daemon=True
        )
        if self._store is not None and mesh.world.size > 1:
            self._thread.start()
            _beating.add(self)

    @property
    def can_find_lost(self) -> bool:
        """Whether `lost` can find lost ranks, which needs a store for heartbeats."""
        return self._store is not None

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)

    def lost(self) -> list[str]:
        """The ranks without a heartbeat for some seconds, with their hosts.

        A rank that waits for a lost rank still sends heartbeats. The first rank that finds lost
        ranks stores them for all, since it may exit and then look lost to slower ranks. If the
        store is unreachable, the process that hosts it is gone, and only that is returned.
        """
        if self._store is None:
            return []
        ranks = self._ranks
        try:
            stored = _within(3 * PATIENCE_S, lambda: self._find(self._store, ranks))
        except Exception as error:  # noqa: BLE001 - any error means that the store is unreachable
            reason = str(error) or f"no answer in {3 * PATIENCE_S:g} s"
            return [f"rank 0 or its launcher, which has the rendezvous store ({reason})"]
        return [
            self._mesh.name(ranks.index(int(rank))) for rank in stored.split(",") if rank != "-"
        ]

    def behind(self) -> list[str]:
        """The ranks that had begun the fewest exchanges when `lost` was called.

        None if this rank had begun no more.
        """
        fewest = min(self._others.values(), default=self.begun)
        if fewest >= self.begun:
            return []
        return [
            self._mesh.name(self._ranks.index(rank))
            for rank, begun in self._others.items()
            if begun == fewest
        ]

    def _find(self, store: Any, ranks: list[int]) -> str:
        """The numbers of the lost ranks, or a dash, as the first rank has found them."""
        before = _read_beats(store, self._group, ranks)
        missing, end = set(ranks), time.monotonic() + PATIENCE_S
        while missing and time.monotonic() < end:
            time.sleep(BEAT_S / 4)
            now = _read_beats(store, self._group, ranks)
            fresh = {rank for rank in missing if now[rank] != before[rank]}
            missing -= fresh
            self._others |= {rank: int(now[rank].split()[1]) for rank in fresh}
        found = ",".join(map(str, sorted(missing))) or "-"
        first: bytes = store.compare_set(_FOUND.format(self._group), "", found)
        return first.decode()


_beating: "weakref.WeakSet[Heartbeat]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all threads: the interpreter aborts at exit if one is in the store's C++ code."""
    for pulse in list(_beating):
        pulse._stopped.set()
    for pulse in list(_beating):
        pulse.stop()


def _within(seconds: float, read: Callable[[], _Answer]) -> _Answer:
    """What `read` returns. It may never return: a store behind a broken link does not answer.

    Raises:
        TimeoutError: it took too long.
    """
    answer: Future[_Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(read())
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            answer.set_exception(error)

    threading.Thread(target=work, name="busbw-accel-store", daemon=True).start()
    return answer.result(seconds)


def _group_name(mesh: Mesh) -> str:
    """The same on all ranks of the group, and another for each group of the job."""
    return mesh.world.group.group_name if mesh.world.group is not None else ""


def _own_store() -> Any:
    """A separate connection to the job's store, since the job's own may be blocked.

    None without a store, and for a FileStore, which grows with each write.
    """
    try:
        store = distributed_c10d._get_default_store()
        while isinstance(store, dist.PrefixStore):
            store = store.underlying_store
        return None if isinstance(store, dist.FileStore) else store.clone()
    except (AttributeError, RuntimeError, ValueError):
        return None


def _beat(
    pulse: "weakref.ref[Heartbeat]", stopped: threading.Event, store: Any, group: str
) -> None:
    key = _KEY.format(group, dist.get_rank())
    while not stopped.is_set():
        owner = pulse()
        if owner is None:
            return
        beat = f"{time.monotonic_ns()} {owner.begun}"
        del owner  # it may go while this thread waits
        try:
            store.set(key, beat)
        except Exception:  # noqa: BLE001 - the job has ended
            return
        stopped.wait(BEAT_S)


def _read_beats(store: Any, group: str, ranks: list[int]) -> dict[int, bytes]:
    """What each rank has set last: the time of its clock, and the exchanges that it has begun."""
    keys = [_KEY.format(group, rank) for rank in ranks]
    return {
        rank: store.get(key) if store.check([key]) else b""
        for rank, key in zip(ranks, keys, strict=True)
    }
