"""The way of exchanges through the host's memory: copies, busbw-native's transport, and a stream that waits for a number in memory.

NCCL's kernels hold multiprocessors of a GPU as long as bytes are under way, and kernels that want them all take twice as long meanwhile
(benchmarks/train_2xh200_202611). Here none is held: copies are the copy engines' work, and waiting is the stream's own.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
import torch.distributed as dist

from busbw.accel.carrier import Carrier

# Bytes of a copy, of which one is under way while another is sent: so many of an exchange, where that makes them neither small nor large.
CHUNKS, LEAST, MOST = 8, 512 << 10, 4 << 20
_ROUND = 1 << 32  # numbers begin anew there
_APART = 32  # numbers between the two that a stream writes and waits for: another line of the cache


class Route:
    """One for each line of ranks."""

    def __init__(self, group: dist.ProcessGroup, patience_s: float) -> None:
        """Every rank of the group has to make it; see Carrier."""
        self._carrier = Carrier(group, patience_s)
        self._place = dist.get_rank(group)
        self._base = 0
        self._numbers = torch.zeros(2 * _APART, dtype=torch.int32, pin_memory=torch.cuda.is_available())
        self._ready, self._done = self._numbers.data_ptr(), self._numbers[_APART:].data_ptr()
        self._rooms: dict[str, torch.Tensor] = {}
        self._outgrown: list[torch.Tensor] = []  # a copy or the carrier may still be at them
        self._turn = 0

    def all_gather(self, every: torch.Tensor, own: torch.Tensor) -> None:
        """Rows of `every`, contiguous, become the ranks' `own`, flat."""
        rows, mine = _bytes(every, len(every)), _bytes(own, 1)[0]
        self._exchange([mine] * len(self._carrier.peers), [rows[peer] for peer in self._carrier.peers])
        rows[self._place].copy_(mine)

    def all_to_all(self, came: torch.Tensor, rows: torch.Tensor) -> None:
        """Rows of `came` become what each rank has in its row of this rank's number; both contiguous."""
        there, here = _bytes(came, len(came)), _bytes(rows, len(rows))
        self._exchange([here[peer] for peer in self._carrier.peers], [there[peer] for peer in self._carrier.peers])
        there[self._place].copy_(here[self._place])

    def close(self) -> None:
        """End its connections and its thread, once streams are past what they were given: they use memory that goes with it."""
        if self._rooms:
            torch.cuda.synchronize()
        self._carrier.close()

    @staticmethod
    def _chunk(nbytes: int) -> int:
        return max(LEAST, min(MOST, -(-nbytes // CHUNKS)))

    def _exchange(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        """With each peer. On a GPU in the current stream's time, as any kernel."""
        self._carrier.check()
        if came[0].numel():
            (self._on_stream if came[0].is_cuda else self._at_once)(sent, came)

    def _at_once(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        chunks = self._post(sent, came)
        self._base = (self._base + chunks) % _ROUND
        ctypes.c_uint32.from_address(self._ready).value = self._base
        self._carrier.wait(self._done, self._base)

    def _on_stream(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        length = came[0].numel()
        different = sent[:1] if all(one is sent[0] for one in sent) else sent
        out = self._room("out", length * len(different)).view(len(different), length)
        # What comes next may be written while what came last is copied: turn about.
        self._turn = 1 - self._turn
        within = self._room(f"within {self._turn}", length * len(came)).view(len(came), length)
        chunks = self._post([out[at % len(different)] for at in range(len(sent))], list(within))
        stream = torch.cuda.current_stream(came[0].device).cuda_stream
        chunk = self._chunk(length)
        cuts = [(begin, min(begin + chunk, length)) for begin in range(0, length, chunk)]
        for number, (begin, end) in enumerate(cuts, self._base + 1):
            for one, copy in zip(different, out, strict=True):
                copy[begin:end].copy_(one[begin:end], non_blocking=True)
            _told("Write", stream, self._ready, number % _ROUND)
        for number, (begin, end) in enumerate(cuts, self._base + 1):
            _told("Wait", stream, self._done, number % _ROUND)
            for one, copy in zip(came, within, strict=True):
                one[begin:end].copy_(copy[begin:end], non_blocking=True)
        self._base = (self._base + chunks) % _ROUND

    def _post(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> int:
        addresses = [(one.data_ptr(), other.data_ptr()) for one, other in zip(sent, came, strict=True)]
        return self._carrier.post(addresses, came[0].numel(), self._chunk(came[0].numel()), self._ready, self._done, self._base)

    def _room(self, name: str, nbytes: int) -> torch.Tensor:
        """Pinned memory that stays. Twice the last at least, as buckets grow: less than as much again is outgrown."""
        room = self._rooms.get(name)
        if room is None or room.numel() < nbytes:
            if room is not None:
                self._outgrown.append(room)
            self._rooms[name] = room = torch.empty(1 << (nbytes - 1).bit_length(), dtype=torch.uint8, pin_memory=True)
        return room[:nbytes]


def _bytes(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8).view(rows, -1)


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    for name in ("cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"):
        getattr(driver, name).argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
    return driver


def _told(what: str, stream: int, address: int, number: int) -> None:
    """Have a stream write a number, after all before it, or wait until it is reached."""
    outcome = getattr(_driver(), f"cuStream{what}Value32_v2")(stream, address, number, 0)  # 0: wait for at least, counting round
    if outcome:
        raise RuntimeError(f"the CUDA driver refuses a stream that {what.lower()}s for or to memory of the host: error {outcome}")
