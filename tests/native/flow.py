"""Traffic like that of NCCL's progress thread: one thread for all connections, with a window of
requests of which the oldest is tested.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from nccl_net import Net, NetError
from payload import Buffer

# between two tests of what is outstanding; longer and longer while nothing moves
POLL_S, MOST_POLL_S = 20e-6, 500e-6


@dataclass
class Flow:
    """One connection's part: messages as [bytes, seed] (and posted bytes, to receive).

    `preset` is the value of *request before irecv; without `sizes`, test gets NULL for them.
    """

    comm: int
    way: str
    messages: list[list[int]]
    window: int = 8
    preset: int = 0
    sizes: bool = True
    posted: int = 0
    refused: int = 0
    error: int | None = None
    call: str = ""
    ended: float = 0.0
    received_sizes: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    _ahead: deque[tuple[int, Buffer]] = field(default_factory=deque)
    _next: Buffer | None = None

    @property
    def over(self) -> bool:
        """Whether it has finished or failed."""
        return self.error is not None or len(self.times) >= len(self.messages)

    def step(self, net: Net) -> bool:
        """Post if the window has room, test the oldest. Returns whether anything moved."""
        try:
            posted = self._post(net)
            return self._test(net) or posted
        except NetError as error:
            self.error, self.call, self.ended = error.code, error.call, time.monotonic()
            return True

    def _post(self, net: Net) -> bool:
        if self.posted >= len(self.messages) or len(self._ahead) >= self.window:
            return False
        size, seed, *posted = self.messages[self.posted]
        if self._next is None:  # retried with the same arguments until it is accepted
            self._next = Buffer(posted[0] if posted else size)
            if self.way == "send":
                self._next.fill(seed)
        if self.way == "send":
            request = net.isend(self.comm, self._next.address, size)
        else:
            request = net.irecv(self.comm, self._next.address, self._next.size, self.preset)
        if request is None or request == self.preset:
            self.refused += 1
            self.faults += [f"*request was left as {request}"] if request else []
            return False
        self._ahead.append((request, self._next))
        self._next = None
        self.posted += 1
        return True

    def _test(self, net: Net) -> bool:
        if not self._ahead:
            return False
        request, buffer = self._ahead[0]
        received = net.test(request, self.sizes)
        if received is None:
            return False
        number = len(self.times)
        self.times.append(time.monotonic())
        self.ended = self.times[-1]
        self._ahead.popleft()
        self.received_sizes.append(received)
        if self.way == "recv":
            size, seed = self.messages[number][:2]
            fault = buffer.fault(size, seed)
            self.faults += [f"message {number}: {fault}"] if fault else []
        return True

    def outstanding_faults(self) -> list[str]:
        """Writes outside buffers that are still posted."""
        return [fault for _, buffer in self._ahead if (fault := buffer.guard_fault())]

    def report(self) -> dict[str, Any]:
        """The result, for JSON."""
        return {
            "done": len(self.times),
            "posted": self.posted,
            "outstanding": len(self._ahead),
            "refused": self.refused,
            "error": self.error,
            "call": self.call,
            "ended": self.ended,
            "sizes": self.received_sizes,
            "faults": self.faults + self.outstanding_faults(),
            "times": self.times,
        }


def run(net: Net, flows: list[Flow], limit_s: float, until_posted: bool = False) -> None:
    """Run all flows until each has ended or the limit has passed, or only until everything is
    posted.
    """
    deadline, pause_s = time.monotonic() + limit_s, POLL_S
    while time.monotonic() < deadline:
        busy = [flow for flow in flows if not flow.over]
        if not busy or (
            until_posted
            and all(flow.posted >= min(flow.window, len(flow.messages)) for flow in busy)
        ):
            return
        moved = [flow.step(net) for flow in busy]
        if any(moved):
            pause_s = POLL_S
        else:
            # NCCL spins here, but two spinning processes would leave no core for the transport's
            # threads on a small machine.
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_POLL_S)
