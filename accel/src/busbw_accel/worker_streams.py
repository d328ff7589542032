"""The streams of a GPU on which a worker queues exchanges."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch

# Streams that take turns: a bucket is packed, and copied to the host, while the one before it is
# sent. On a single stream the network would idle in that time.
LANES = 2
URGENT = -1  # priority: kernels that an exchange waits for run before those of backward


class WorkerStreams:
    """Streams that are made at their first use; none on CPUs."""

    def __init__(self) -> None:
        self._lanes: dict[torch.device, list[torch.cuda.Stream]] = {}

    def after_now(
        self, tensor: torch.Tensor, lane: int | None
    ) -> Callable[[], AbstractContextManager[object]]:
        """A context of a stream, after what this thread has queued on its own so far.

        `lane`: the number of the stream, in turns. Exchanges that use the same state must be on the
        same one, also in later steps: its memory is reused in the order of that stream. None: after
        all that was queued before on any of them, and before all that is queued later. The stream
        may use the memory of `tensor`.
        """
        device = tensor.device
        if device not in self._lanes:
            self._lanes[device] = [torch.cuda.Stream(device, URGENT) for _ in range(LANES)]
        side, *others = self._lanes[device]
        if lane is not None:
            side, others = self._lanes[device][lane % LANES], []
        queued = torch.cuda.current_stream(device).record_event()
        parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
        for part in parts:
            part.record_stream(side)

        @contextmanager
        def entered() -> Iterator[None]:
            side.wait_event(queued)
            with _between(side, others), torch.cuda.stream(side):
                yield

        return entered

    @contextmanager
    def alone(self, device: torch.device) -> Iterator[None]:
        """A context in which the current stream may use the state of exchanges on any stream."""
        lanes = self._lanes.get(device)
        if lanes is None:
            yield
        else:
            with _between(torch.cuda.current_stream(device), lanes):
                yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """A context of a stream of each device that runs between all exchanges so far and all
        later ones.
        """
        with ExitStack() as contexts:
            for device, (side, *others) in self._lanes.items():
                others.append(torch.cuda.current_stream(device))
                contexts.enter_context(_between(side, others))
                contexts.enter_context(torch.cuda.stream(side))
            yield


@contextmanager
def _between(stream: torch.cuda.Stream, others: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """What is queued on `stream` in this context runs after what other streams have, and before
    what they get later.
    """
    for other in others:
        stream.wait_stream(other)
    yield
    for other in others:
        other.wait_stream(stream)
