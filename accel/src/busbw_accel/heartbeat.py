"""Heartbeats in the rendezvous store, which show the lost ranks when an exchange has failed."""

import atexit
import contextlib
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
_KEY = _OWN + "/alive/{}"
_FOUND = _OWN + "/lost/{}"  # of a group
_CAME = _OWN + "/came/{}/{}"  # of a group and a rank
_Answer = TypeVar("_Answer")


class Heartbeat:
    """Sends heartbeats of this process while the object lives, and checks those of other ranks."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._store = _own_store()
        self._stopped = threading.Event()
        arguments = (weakref.ref(self), self._stopped, self._store)
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
        ranks = dist.get_process_group_ranks(self._mesh.world.group)
        try:
            stored = _within(3 * PATIENCE_S, lambda: self._find(self._store, ranks))
        except Exception as error:  # noqa: BLE001 - any error means that the store is unreachable
            reason = str(error) or f"no answer in {3 * PATIENCE_S:g} s"
            return [f"rank 0 or its launcher, which has the rendezvous store ({reason})"]
        return [
            self._mesh.name(ranks.index(int(rank))) for rank in stored.split(",") if rank != "-"
        ]

    def _find(self, store: Any, ranks: list[int]) -> str:
        """The numbers of the lost ranks, or a dash, as the first rank has found them."""
        before = _read_beats(store, ranks)
        missing, end = set(ranks), time.monotonic() + PATIENCE_S
        while missing and time.monotonic() < end:
            time.sleep(BEAT_S / 4)
            now = _read_beats(store, ranks)
            missing -= {rank for rank in missing if now[rank] != before[rank]}
        found = ",".join(map(str, sorted(missing))) or "-"
        first: bytes = store.compare_set(_FOUND.format(_group_name(self._mesh)), "", found)
        return first.decode()


class Arrivals:
    """After which optimizer step each rank came to its last exchange, in the rendezvous store."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._store = _own_store()

    def note(self, step: int) -> None:
        """This rank has come to the exchange after `step`. Does not wait."""
        if self._store is not None:
            with contextlib.suppress(Exception):  # the exchange says what has failed
                self._store.set(self._key(self._mesh.world.rank), str(step))

    def missing(self, step: int) -> list[str]:
        """The ranks that have not come to the exchange after `step`, and their last step."""
        if self._store is None:
            return []
        try:
            last = _within(PATIENCE_S, lambda: self._read(self._store))
        except Exception:  # noqa: BLE001 - the store is gone, which `Heartbeat.lost` says
            return []
        name = self._mesh.name
        return [f"{name(rank)} (its last: {at})" for rank, at in enumerate(last) if at < step]

    def _read(self, store: Any) -> list[int]:
        keys = [self._key(rank) for rank in range(self._mesh.world.size)]
        return [int(store.get(key)) if store.check([key]) else 0 for key in keys]

    def _key(self, rank: int) -> str:
        return _CAME.format(_group_name(self._mesh), rank)


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


def _beat(pulse: "weakref.ref[Heartbeat]", stopped: threading.Event, store: Any) -> None:
    rank = dist.get_rank()
    while pulse() is not None and not stopped.is_set():
        try:
            store.set(_KEY.format(rank), str(time.monotonic_ns()))
        except Exception:  # noqa: BLE001 - the job has ended
            return
        stopped.wait(BEAT_S)


def _read_beats(store: Any, ranks: list[int]) -> dict[int, bytes]:
    keys = [_KEY.format(rank) for rank in ranks]
    return {
        rank: store.get(key) if store.check([key]) else b""
        for rank, key in zip(ranks, keys, strict=True)
    }
