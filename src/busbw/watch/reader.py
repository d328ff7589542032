"""The counters of this host, read by a child process: a driver or NVML that hangs blocks only the
child.

reader = Reader(LinkSelection(ports=("mlx5_0",)))  starts the child, which finds the links
sample = reader.read()                        any number of times; `unread` has what did not answer
reader.close()
"""

import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

from busbw.core import program
from busbw.core.errors import TimedOut
from busbw.core.link_samples import HostSample
from busbw.host.link_counters import HOST_FILES, NVML, LinkCounters
from busbw.host.process import die_with_parent

ENDS_S = 2.0  # after it was killed, unless a driver hangs
ANSWER_S = 5.0  # for the counters of one link, or of all GPUs
START_S = 30.0  # for NVML to start: 20 s on 8 GPUs without persistence mode
TRIES = 3
PROCESS_ENDED = "its process ended"


class LinkSelection(msgspec.Struct, frozen=True):
    """Which links a child reads; `without` are those that hang."""

    ports: tuple[str, ...] = ()
    gpus: bool = True
    states: bool = False
    system: bool = False
    without: tuple[str, ...] = ()


class SampleReader:
    """Samples from a child process, which is replaced by one that reads less if it does not answer.

    Raises UsageError and NoMeasurement like LinkCounters, and TimedOut if reading hangs whatever
    links are left out.
    """

    def __init__(
        self, links: LinkSelection, *, answer_s: float = ANSWER_S, start_s: float = START_S
    ) -> None:
        self._links, self._answer_s, self._start_s = links, answer_s, start_s
        self._lost: list[str] = []
        self._tries = 0  # children in a row that gave no sample, although no link was to blame
        self._start()

    def read(self) -> HostSample:
        """All counters as they are now, without those that do not answer."""
        while True:
            self._send(True)
            sample = self._answer(self._answer_s)
            if isinstance(sample, HostSample):
                self._tries = 0
                return msgspec.structs.replace(sample, unread=(*sample.unread, *self._lost))
            self._start()

    def close(self) -> None:
        """End the child. One that hangs in the kernel is left to it."""
        self._connection.close()
        self._child.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(ENDS_S)

    def _start(self) -> None:
        """Start a child, and wait until it has found the links."""
        while True:
            ours, theirs = socket.socketpair()
            with theirs:
                words = program.module_command("busbw.watch.reader", str(theirs.fileno()))
                self._child = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self._connection = Connection(ours.detach())
            self._send(self._links)
            if self._answer(self._start_s) is True:
                return

    def _send(self, message: LinkSelection | bool) -> None:
        with suppress(OSError):  # a child that has died is noticed when it does not answer
            self._connection.send(message)

    def _answer(self, limit_s: float) -> object:
        """The child's next message that is not the name of what it reads now; None if the child
        hangs or has ended, and is given up.
        """
        name = ""
        try:
            while self._connection.poll(limit_s):
                message = self._connection.recv()
                if isinstance(message, Exception):
                    self.close()
                    raise message
                if not isinstance(message, str):
                    return message
                name = message
            self._give_up(name, f"did not answer within {limit_s:g} s")
        except (EOFError, ConnectionError):
            self._give_up(name, PROCESS_ENDED)
        return None

    def _give_up(self, name: str, reason: str) -> None:
        """End the child. The next one leaves out `name`, a link or NVML, whose counters did not
        come for this `reason`.
        """
        self.close()
        if name in ("", HOST_FILES):
            self._tries += 1
            if self._tries == TRIES:
                raise TimedOut(
                    f"reading the counters of this host: {name or 'busbw'}: {reason}",
                    "dmesg -T | tail -50",
                )
            return
        if name == NVML:
            self._links = msgspec.structs.replace(self._links, gpus=False)
        else:
            without = (*self._links.without, name)
            self._links = msgspec.structs.replace(self._links, without=without)
        self._lost.append(f"{name}: {reason}; it is not read any more")


def main() -> None:
    """The child: it finds the links, then reads their counters each time it is asked."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    try:
        links: LinkSelection = connection.recv()
    except EOFError:  # the parent has ended
        return
    try:
        traffic = LinkCounters(
            names=links.ports,
            gpus=links.gpus,
            states=links.states,
            system=links.system,
            without=links.without,
            note=connection.send,
        )
    except Exception as error:  # noqa: BLE001 - raised again in the parent, unless that has ended
        with suppress(ConnectionError):
            connection.send(error)
        return
    with suppress(EOFError, ConnectionError):
        connection.send(True)
        while connection.recv():
            connection.send(traffic.read())


if __name__ == "__main__":
    main()
