"""The thread that updates weights in host memory: first those that the next forward needs first."""

import heapq
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from busbw.core.errors import BusbwError
from busbw_accel.host_adam import HostAdam, Rule, States
from busbw_accel.offloading.copy_streams import Lane, StartedCopy
from busbw_accel.offloading.state_memory import OffloadedParameter, Staging

# The limit of each wait for updates. Those of 13e9 parameters on one core take a minute.
LIMIT_S = 600.0


@dataclass(order=True, slots=True)
class GradientPiece:
    """A range of a parameter's elements whose gradient is on its way to the host."""

    rank: tuple[int, int, int]  # order of pieces: when their weights are needed
    offloaded: OffloadedParameter = field(compare=False)
    part: slice = field(compare=False)
    copied: StartedCopy = field(compare=False)  # the copy of the gradient to the host
    # still to be applied, each in place of the one before; None restores the earlier states
    rules: list[Rule | None] = field(compare=False)
    # a gradient with a larger norm does not get the first rule
    limit: float = field(compare=False, default=math.inf)
    applied: Rule | None = field(compare=False, default=None)  # the rule in the states now
    checked: bool = field(compare=False, default=False)
    idle: bool = field(compare=False, default=False)


class UpdateWorker:
    """Updates pieces as their gradients arrive, and starts the copies of the new weights to the
    device.
    """

    def __init__(
        self,
        adam: HostAdam,
        device: torch.device,
        down: Lane,
        staging: Staging | None,
        norm_of: Callable[[OffloadedParameter], float],
    ) -> None:
        """`staging`: where new weights wait for their copy to the device; None leaves them in the
        slots, in place of the gradients.

        `norm_of`: returns the norm of a parameter's gradient, which has arrived.
        """
        self.adam, self._device, self._down = adam, device, down
        self._staging, self._norm_of = staging, norm_of
        self.update_s = 0.0
        self._coming: deque[GradientPiece] = deque()  # in the order of their copies
        self._heap: list[GradientPiece] = []  # to update next, the first by rank on top
        # The number of pieces of each parameter that are not updated yet, by its index.
        self._pending: Counter[int] = Counter()
        self._last_up: dict[int, StartedCopy] = {}
        self._error: BaseException | None = None
        self._state = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="busbw-offload", daemon=True)
        self._thread.start()

    def submit(self, pieces: Sequence[GradientPiece]) -> None:
        """Update these pieces as soon as their gradients have arrived."""
        with self._state:
            self._pending.update(piece.offloaded.index for piece in pieces)
            self._coming.extend(pieces)
            self._state.notify_all()

    def revise(self, piece: GradientPiece, rule: Rule | None) -> None:
        """Replace the last update of a piece that was submitted, whether it has been made or not.

        `rule`: None restores the states from before the step.
        """
        with self._state:
            piece.rules.append(rule)
            if piece.idle:
                piece.idle = False
                self._pending[piece.offloaded.index] += 1
                heapq.heappush(self._heap, piece)
                self._state.notify_all()

    def wait(self, parameters: Sequence[OffloadedParameter]) -> None:
        """Block until the new weights of these parameters are in place.

        Raises:
            BusbwError: updates failed, or did not end in LIMIT_S.
        """
        deadline = time.monotonic() + LIMIT_S
        indices = [offloaded.index for offloaded in parameters]
        with self._state:
            while self._error is None and any(self._pending[index] for index in indices):
                if not self._state.wait(max(0.0, deadline - time.monotonic())):
                    pieces_left = self._pending.total()
                    raise BusbwError(
                        f"updates did not end in {LIMIT_S:g} s: {pieces_left} pieces are left",
                        "look at the load of the host's cores",
                    )
            if self._error is not None:
                raise BusbwError(
                    f"updates in host memory failed: {self._error}", "load the last checkpoint"
                ) from self._error
            copies = [self._last_up.pop(index) for index in indices if index in self._last_up]
        for copied in copies:
            copied.wait()

    def close(self) -> None:
        """End the thread. Updates that have not begun are dropped. May be called again."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        if threading.current_thread() is not self._thread:  # which may collect garbage too
            self._thread.join(LIMIT_S)
        self.adam.close()

    def _run(self) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            while True:
                piece = self._next()
                if piece is None:
                    return
                self._work_on(piece)
                # It refers to the model, which must not be kept while there is nothing to do.
                del piece
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            with self._state:
                self._error = error
                self._state.notify_all()

    def _next(self) -> GradientPiece | None:
        """The piece to update next; None at the end."""
        with self._state:
            while not self._closed and not self._coming and not self._heap:
                self._state.wait()
            if self._closed:
                return None
            while self._coming and (not self._heap or self._coming[0].copied.done()):
                heapq.heappush(self._heap, self._coming.popleft())
            piece = heapq.heappop(self._heap)
        piece.copied.wait()
        return piece

    def _work_on(self, piece: GradientPiece) -> None:
        """Apply the rules of a piece one after the other, until it has no more."""
        if not piece.checked:
            piece.checked = True
            self._down.measured(piece.copied)
            norm = self._norm_of(piece.offloaded)
            if not (norm <= piece.limit and norm < math.inf):
                piece.rules.pop(0)
                if self._staging is None:
                    piece.rules.insert(0, None)  # the slot gets the weights as they were
        while True:
            with self._state:
                if not piece.rules:
                    piece.idle = True
                    self._pending[piece.offloaded.index] -= 1
                    self._state.notify_all()
                    return
                rule = piece.rules.pop(0)
            self._apply(piece, rule)

    def _apply(self, piece: GradientPiece, rule: Rule | None) -> None:
        offloaded, part = piece.offloaded, piece.part
        assert offloaded.slot is not None
        assert offloaded.states is not None
        slot, states = offloaded.slot[part], offloaded.states
        states = States(states.weight[part], states.moment[part], states.square[part])
        out = slot if self._staging is None else self._staging.take(slot.numel())
        begun = time.perf_counter()
        self.adam.update(rule, slot, states, out, piece.applied)
        self.update_s += time.perf_counter() - begun
        piece.applied = rule
        if self._staging is not None:
            copied = self._staging.send(offloaded.local[part])
            with self._state:
                self._last_up[offloaded.index] = copied
