"""Host staging: exchanges through host memory.

Data is copied to host memory and sent by busbw-native's transport. Streams of a GPU wait for
counters in memory.

NCCL's kernels occupy multiprocessors of a GPU during a transfer, and kernels that need all of them
take twice as long in that time (benchmarks/train_2xh200_202611). Host staging occupies none: the
copy engines copy, and the stream waits for memory.
"""

import ctypes
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import torch
import torch.distributed as dist

from busbw.core.errors import BusbwError, UsageError
from busbw_accel.exchange_session import ExchangeSession, Numbers

# An exchange is cut into CHUNKS copies of MIN_CHUNK_BYTES to MAX_CHUNK_BYTES, so that copying
# overlaps with sending. Each chunk costs the host four calls of CUDA's driver, and a copy of 2 MiB
# takes 0.05 ms, so smaller ones do not pay.
CHUNKS, MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 8, 2 << 20, 4 << 20
JOIN_S = 60.0  # for all ranks to connect
_ROUND = 1 << 32  # counters wrap around
# The distance of the counter that a stream waits for from the one that it writes: another cache
# line.
_APART = 32


class _StreamBuffers:
    """The counters and buffers of the exchanges that are queued on one stream, or of the CPU.

    With buffers of its own, a stream can fill them while the exchange of another stream runs.
    """

    def __init__(self, stream: torch.cuda.Stream | None, memory: list[torch.Tensor]) -> None:
        """`memory` gets all tensors that the session or the stream may use."""
        self.stream, self._memory = stream, memory
        counters = torch.zeros(2 * _APART, dtype=torch.int32, pin_memory=stream is not None)
        memory.append(counters)
        self.numbers = Numbers(
            counters.data_ptr(), counters[_APART:].data_ptr(), counters[_APART + 1 :].data_ptr()
        )
        self.outcome = counters[_APART + 1 : _APART + 2]  # not 0: an exchange has failed
        self.base = self.turn = 0
        self._rooms: dict[str, torch.Tensor] = {}
        if stream is not None:  # raises if the driver cannot do it
            _queue("Write", stream.cuda_stream, self.numbers.ready, 0)
            _queue("Wait", stream.cuda_stream, self.numbers.done, 0)

    def buffer(self, name: str, nbytes: int) -> torch.Tensor:
        """A reusable pinned buffer.

        Sizes are powers of two; outgrown buffers are kept until the staging is closed.
        """
        room = self._rooms.get(name)
        if room is None or room.numel() < nbytes:
            room = torch.empty(1 << (nbytes - 1).bit_length(), dtype=torch.uint8, pin_memory=True)
            self._memory.append(room)
            self._rooms[name] = room
        return room[:nbytes]


class HostStaging:
    """Host staging of one communicator, made by `connect`.

    The network runs exchanges in the order of the calls, also of calls on several streams.
    """

    def __init__(self, rank: int, peers: int) -> None:
        """Listen for this number of peers. `rank` is this rank's index in the communicator."""
        self.session = ExchangeSession(peers)
        self._rank, self._peers = rank, [peer for peer in range(peers + 1) if peer != rank]
        self._memory: list[torch.Tensor] = []  # that the session or streams may use
        self._lanes: dict[torch.cuda.Stream | None, _StreamBuffers] = {}
        # On the device: whether the last exchange has failed.
        self._failed: torch.Tensor | None = None
        self._end = weakref.finalize(self, _release_abandoned, self.session, self._memory)
        self._lane(torch.cuda.current_stream() if torch.cuda.is_available() else None)

    def all_gather(self, gathered: torch.Tensor, tensor: torch.Tensor) -> None:
        """Gather `tensor` (flat) of all ranks into the rows of `gathered` (contiguous)."""
        rows, sent = _bytes(gathered, len(gathered)), _bytes(tensor, 1)[0]
        self._exchange([sent] * len(self._peers), [rows[peer] for peer in self._peers])
        rows[self._rank].copy_(sent)

    def all_to_all(self, received: torch.Tensor, rows: torch.Tensor) -> None:
        """Send row i of `rows` to rank i, and receive row i of `received` from it.

        Both are contiguous.
        """
        target_rows, source_rows = _bytes(received, len(received)), _bytes(rows, len(rows))
        self._exchange(
            [source_rows[peer] for peer in self._peers], [target_rows[peer] for peer in self._peers]
        )
        target_rows[self._rank].copy_(source_rows[self._rank])

    def swap(self, messages: torch.Tensor) -> torch.Tensor:
        """The messages of all ranks, as in `Communicator.swap`. The host waits for no length."""
        received = messages.new_empty(len(self._peers) + 1, messages.shape[1])
        rows = messages.unbind() if len(messages) > 1 else (messages[0],) * len(received)
        sent, targets = ([each[peer] for peer in self._peers] for each in (rows, received))
        self._exchange(sent, targets, sized=True)
        return received

    @property
    def failed(self) -> torch.Tensor | None:
        """On the device, in stream order: not 0 if the last exchange failed.

        On the CPU the exchange itself raises.
        """
        return self._failed

    def check(self) -> None:
        self.session.check()

    def close(self) -> None:
        """Close the connections after pending stream work. Raises if that fails."""
        if not self._end.alive:
            return
        devices = {stream.device for stream in self._lanes if stream is not None}
        try:
            if not any(lane.outcome.item() for lane in self._lanes.values()):
                _synchronize(devices)
            self.session.check()
        finally:
            self._end.detach()
            self.session.close()
            _synchronize(devices)  # streams may still use the memory
            self._memory.clear()
            self._lanes.clear()

    @staticmethod
    def _chunk(nbytes: int) -> int:
        return max(MIN_CHUNK_BYTES, min(MAX_CHUNK_BYTES, -(-nbytes // CHUNKS)))

    def _cut(self, rows: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
        """The first chunk of each row, the second of each, ..."""
        return zip(*(row.split(self._chunk(row.numel())) for row in rows), strict=True)

    def _exchange(
        self, sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor], *, sized: bool = False
    ) -> None:
        """Exchange with each peer. On a GPU it is ordered in the current stream.

        `sized`: see `ExchangeSession.post`.
        """
        self.session.check()
        if received[0].numel():
            exchange = self._exchange_on_cpu
            if received[0].is_cuda:
                exchange = self._exchange_on_stream
            exchange(sent, received, sized)

    def _exchange_on_cpu(
        self, sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor], sized: bool
    ) -> None:
        lane = self._lane(None)
        chunks = self._post(lane, sent, received, sized)
        lane.base = (lane.base + chunks) % _ROUND
        ctypes.c_uint32.from_address(lane.numbers.ready).value = lane.base
        self.session.wait(lane.numbers.done, lane.base)

    def _exchange_on_stream(
        self, sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor], sized: bool
    ) -> None:
        lane = self._lane(torch.cuda.current_stream(received[0].device))
        assert lane.stream is not None
        stream, length = lane.stream.cuda_stream, received[0].numel()
        same = all(tensor is sent[0] for tensor in sent)
        different = sent[:1] if same else sent
        out = lane.buffer("out", length * len(different)).view(len(different), length)
        # Two buffers take turns: the next exchange may write one while the other is copied.
        lane.turn = 1 - lane.turn
        within = lane.buffer(f"within {lane.turn}", length * len(received)).view(
            len(received), length
        )
        chunks = self._post(
            lane, [out[at % len(different)] for at in range(len(sent))], list(within), sized
        )
        counts = [(lane.base + 1 + chunk) % _ROUND for chunk in range(chunks)]
        for count, sources, copies in zip(
            counts, self._cut(different), self._cut(out), strict=True
        ):
            for source, copy in zip(sources, copies, strict=True):
                copy.copy_(source, non_blocking=True)
            _queue("Write", stream, lane.numbers.ready, count)
        for count, targets, copies in zip(
            counts, self._cut(received), self._cut(within), strict=True
        ):
            _queue("Wait", stream, lane.numbers.done, count)
            for target, copy in zip(targets, copies, strict=True):
                target.copy_(copy, non_blocking=True)
        lane.base = (lane.base + chunks) % _ROUND
        self._failed = lane.outcome.to(received[0].device, non_blocking=True)

    def _lane(self, stream: torch.cuda.Stream | None) -> _StreamBuffers:
        """The lane of a stream; None: of the CPU."""
        if stream in self._lanes:
            return self._lanes[stream]
        for other in self._lanes:
            if stream is not None and other is not None and other.device != stream.device:
                raise RuntimeError(
                    f"an exchange on {stream.device} after one on {other.device}: a rank must use"
                    " one GPU"
                )
        self._lanes[stream] = _StreamBuffers(stream, self._memory)
        return self._lanes[stream]

    def _post(
        self,
        lane: _StreamBuffers,
        sent: Sequence[torch.Tensor],
        received: Sequence[torch.Tensor],
        sized: bool,
    ) -> int:
        """Returns the number of chunks."""
        addresses = [
            (source.data_ptr(), target.data_ptr())
            for source, target in zip(sent, received, strict=True)
        ]
        length = received[0].numel()
        return self.session.post(
            addresses, length, self._chunk(length), lane.numbers, lane.base, sized=sized
        )


def _synchronize(devices: Iterable[torch.device]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)


_abandoned_memory: list[torch.Tensor] = []  # memory that streams may still write to or wait for


def _release_abandoned(session: ExchangeSession, memory: list[torch.Tensor]) -> None:
    """Close the session of a staging that was not closed.

    Its memory is kept, since streams may still use it.
    """
    _abandoned_memory.extend(memory)
    session.close()


def connect(ranks: Sequence[int], patience_s: float) -> HostStaging | None:
    """Host staging between `ranks`, which include this rank; None for a single rank.

    Every rank of the default group must call it.

    Raises:
        UsageError: a rank has no library or interface, or cannot reach another. Raised on every
            rank.
    """
    this_rank, size = dist.get_rank(), dist.get_world_size()
    peers = [rank for rank in ranks if rank != this_rank]
    staging, reason = None, ""
    try:
        staging = HostStaging(list(ranks).index(this_rank), len(peers)) if peers else None
    except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
        reason = error.message if isinstance(error, BusbwError) else str(error)
    gathered: list[tuple[str, dict[int, bytes]]] = [("", {})] * size
    dist.all_gather_object(
        gathered,
        (reason, dict(zip(peers, staging.session.handles, strict=True)) if staging else {}),
    )
    if not any(reason for reason, _ in gathered):
        try:
            if staging is not None:
                staging.session.join(
                    [gathered[peer][1][this_rank] for peer in peers],
                    min(JOIN_S, patience_s / 2),
                    patience_s,
                )
        except RuntimeError as error:
            reason = str(error)
        dist.all_gather_object(gathered, (reason, {}))
    failures = [f"rank {rank}: {reason}" for rank, (reason, _) in enumerate(gathered) if reason]
    if failures:
        if staging is not None:
            staging.session.close()
        hint = (
            "install busbw-native on all ranks; NCCL_SOCKET_IFNAME or BUSBW_NET_IFNAME selects"
            " interfaces that reach each other"
        )
        raise UsageError(f"host staging is not possible: {'; '.join(failures)}", hint)
    return staging


def _bytes(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8).view(rows, -1)


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    for name in ("cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"):
        getattr(driver, name).argtypes = (
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.c_uint,
        )
    return driver


def _queue(operation: str, stream: int, address: int, number: int) -> None:
    """Queue an operation on a stream: "Write" a counter, or "Wait" until it reaches a number."""
    # 0: wait for at least `number`, modulo 2^32
    outcome = getattr(_driver(), f"cuStream{operation}Value32_v2")(stream, address, number, 0)
    if outcome:
        raise RuntimeError(
            f"cuStream{operation}Value32 on host memory failed: CUDA error {outcome}"
        )
