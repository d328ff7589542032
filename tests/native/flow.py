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
    """One connection's part: messages as [bytes, seed, tag] (and posted bytes, to receive), `group`
    of them a request.

    `preset` is the value of *request before irecv; without `sizes`, test gets NULL for them.
    """

    comm: int
    way: str
    messages: list[list[int]]
    window: int = 8
    group: int = 1
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
    _ahead: deque[tuple[int, list[Buffer]]] = field(default_factory=deque)
    _next: list[Buffer] | None = None

    @property
    def over(self) -> bool:
        """Whether it has finished or failed."""
        return self.error is not None or len(self.times) * self.group >= len(self.messages)

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
        group = self.messages[self.posted : self.posted + self.group]
        if self._next is None:  # retried with the same arguments until it is accepted
            self._next = [
                Buffer(message[3] if len(message) > 3 else message[0]) for message in group
            ]
            if self.way == "send":
                self._next[0].fill(group[0][1])
        if self.way == "send":
            size, _, tag = group[0][:3]
            request = net.isend(self.comm, self._next[0].address, size, tag)
        else:
            buffers = [
                (buffer.address, buffer.size, message[2])
                for buffer, message in zip(self._next, group, strict=True)
            ]
            request = net.irecv(self.comm, buffers, self.preset)
        if request is None or request == self.preset:
            self.refused += 1
            self.faults += [f"*request was left as {request}"] if request else []
            return False
        self._ahead.append((request, self._next))
        self._next = None
        self.posted += len(group)
        return True

    def _test(self, net: Net) -> bool:
        if not self._ahead:
            return False
        request, buffers = self._ahead[0]
        sizes = net.test(request, len(buffers) if self.sizes else 0)
        if sizes is None:
            return False
        first = len(self.times) * self.group
        self.times.append(time.monotonic())
        self.ended = self.times[-1]
        self._ahead.popleft()
        self.received_sizes += sizes
        if self.way == "recv":
            group = self.messages[first : first + self.group]
            buffer_faults = [
                buffer.fault(message[0], message[1])
                for buffer, message in zip(buffers, group, strict=True)
            ]
            self.faults += [
                f"message {first + i}: {fault}" for i, fault in enumerate(buffer_faults) if fault
            ]
        return True

    def outstanding_faults(self) -> list[str]:
        """Writes outside buffers that are still posted."""
        return [
            fault
            for _, buffers in self._ahead
            for buffer in buffers
            if (fault := buffer.guard_fault())
        ]

    def report(self) -> dict[str, Any]:
        """The result, for JSON."""
        return {
            "done": len(self.times) * self.group,
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
            and all(
                flow.posted >= min(flow.window * flow.group, len(flow.messages)) for flow in busy
            )
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
