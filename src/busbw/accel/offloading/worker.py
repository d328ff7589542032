"""The thread that updates weights in host memory, those first that the next forward needs first."""

import heapq
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from busbw.accel.host_adam import HostAdam, Rule, States
from busbw.accel.offloading.lanes import Copied, Lane
from busbw.accel.offloading.units import Offloaded
from busbw.core.errors import BusbwError

LIMIT_S = 600.0  # of every wait for an update; those of 13e9 parameters on one core take a minute
_Rank = tuple[int, int, int]


@dataclass(order=True, slots=True)
class Piece:
    """A range of a parameter's elements whose gradient is on its way to the host. Ordered by when the weights are needed."""

    rank: _Rank
    one: Offloaded = field(compare=False)
    part: slice = field(compare=False)
    rule: Rule = field(compare=False)
    came: Copied = field(compare=False)


class Worker:
    """Updates pieces as their gradients arrive, and starts the copies of the new weights to the device."""

    def __init__(self, adam: HostAdam, device: torch.device, down: Lane, up: Lane | None, finite: Callable[[Offloaded], bool]) -> None:
        """`up`: None leaves the weights in the slots. `finite`: whether the gradient of a parameter, which has arrived, is finite."""
        self.adam, self._device, self._down, self._up, self._finite = adam, device, down, up, finite
        self.update_s = 0.0
        self._coming: deque[Piece] = deque()  # in the order of their copies
        self._here: list[Piece] = []  # a heap
        self._left: Counter[int] = Counter()  # pieces of each parameter that are not updated, by its index
        self._last_up: dict[int, Copied] = {}
        self._rising: deque[Copied] = deque()
        self._error: BaseException | None = None
        self._state = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="busbw-offload", daemon=True)
        self._thread.start()

    def submit(self, pieces: list[Piece]) -> None:
        """Update these pieces as soon as their gradients have arrived."""
        with self._state:
            self._left.update(piece.one.index for piece in pieces)
            self._coming.extend(pieces)
            self._state.notify_all()

    def wait(self, parameters: Sequence[Offloaded]) -> None:
        """Block until these parameters have their new weights in place.

        Raises:
            BusbwError: updates failed, or did not end in LIMIT_S.
        """
        deadline = time.monotonic() + LIMIT_S
        with self._state:
            while self._error is None and any(self._left[one.index] for one in parameters):
                if not self._state.wait(max(0.0, deadline - time.monotonic())):
                    left = self._left.total()
                    raise BusbwError(
                        f"updates did not end in {LIMIT_S:g} s: {left} pieces are left", "look at the load of the host's cores"
                    )
            if self._error is not None:
                raise BusbwError(f"updates in host memory failed: {self._error}", "load the last checkpoint") from self._error
            copies = [self._last_up.pop(one.index) for one in parameters if one.index in self._last_up]
        for copied in copies:
            copied.wait()

    def close(self) -> None:
        """End the thread. Updates that have not begun are dropped."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        self._thread.join(LIMIT_S)
        self.adam.close()

    def _run(self) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            while (piece := self._next()) is not None:
                self._update(piece)
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            with self._state:
                self._error = error
                self._state.notify_all()

    def _next(self) -> Piece | None:
        """The piece to update next; None at the end."""
        while True:
            with self._state:
                while not self._closed and not self._coming and not self._here:
                    self._state.wait()
                if self._closed:
                    return None
                while self._coming and (self._coming[0].came.done() or not self._here):
                    first = self._coming.popleft()
                    heapq.heappush(self._here, first)
                    if not first.came.done():
                        break
                piece = heapq.heappop(self._here)
            piece.came.wait()
            return piece

    def _update(self, piece: Piece) -> None:
        one, part = piece.one, piece.part
        assert one.slot is not None
        assert one.states is not None
        self._down.measured(piece.came)
        slot, states = one.slot[part], States(one.states.weight[part], one.states.moment[part], one.states.square[part])
        begun = time.perf_counter()
        if self._finite(one):
            self.adam.update(piece.rule, slot, states, slot)
        else:
            slot.copy_(states.weight)  # the weights as they were
        self.update_s += time.perf_counter() - begun
        copied = None if self._up is None else self._raise(one.local[part], slot)
        with self._state:
            if copied is not None:
                self._last_up[one.index] = copied
            self._left[one.index] -= 1
            if not self._left[one.index]:
                self._state.notify_all()

    def _raise(self, to: torch.Tensor, slot: torch.Tensor) -> Copied:
        """Start the copy of new weights to the device."""
        assert self._up is not None
        self._rising.append(copied := self._up.copy(to, slot))
        while self._rising and self._rising[0].done():
            self._up.measured(self._rising.popleft())
        return copied
