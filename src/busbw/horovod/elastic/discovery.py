"""The slots of this host: a fixed number, or the answers of a host discovery script, which is
run every second.
"""

import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from busbw.core.errors import BusbwError, UsageError
from busbw.launch import hosts, remote

PERIOD_S, SCRIPT_LIMIT_S = 1.0, 30.0


def parse(text: str, default_slots: int, source: str) -> int:
    """The number of slots in a script's output: lines of `host:slots`, or of `host` with
    `default_slots`.

    A host may have 0 slots.

    Raises UsageError for a line that is not a host, and for another host.
    """
    slots = 0
    for line in (line.strip() for line in text.splitlines()):
        for host in hosts.parse_hosts(line) if line and not line.endswith(":0") else ():
            if not remote.is_local(host.name):
                raise UsageError(
                    f"{source}: {host.name} is not this host, and the workers of an elastic job run"
                    " on one host",
                    "for several hosts, start the script with torchrun, which restarts all ranks"
                    " from the last commit",
                )
            slots += host.slots or default_slots
    return slots


class Script:
    """Runs a discovery script from a thread. `slots()` is its last valid answer."""

    def __init__(self, command: str, default_slots: int) -> None:
        """Runs it once. `command`: a file, or words as in a shell.

        Raises UsageError if that fails.
        """
        self._source, self._default = f"--host-discovery-script {command}", default_slots
        try:
            self._words = (
                [str(Path(command).absolute())] if Path(command).is_file() else shlex.split(command)
            )
        except ValueError as error:
            raise UsageError(f"{self._source}: {error}", "write words as in a shell") from error
        self._slots = self._ask()
        self._stopped = threading.Event()
        threading.Thread(target=self._repeat, name="host discovery", daemon=True).start()

    def slots(self) -> int:
        """Slots of this host."""
        return self._slots

    def stop(self) -> None:
        """Stop running the script."""
        self._stopped.set()

    def _ask(self) -> int:
        (done,) = remote.run(["localhost"], self._words, SCRIPT_LIMIT_S)
        if done.problem:
            raise UsageError(
                f"{self._source}: {done.problem}",
                "make it executable, and let it print one line per host: localhost:4",
            )
        return parse(done.out.decode(errors="replace"), self._default, self._source)

    def _repeat(self) -> None:
        said = ""
        while not self._stopped.wait(PERIOD_S):
            try:
                self._slots = self._ask()
                said = ""
            except BusbwError as error:  # the last answer stays valid
                if str(error) != said:
                    said = str(error)
                    sys.stderr.write(f"busbw horovodrun: {said}; {self._slots} slots stay in use\n")


class Slots:
    """Slots that workers may use.

    A slot whose worker failed is out of use, for ever or for a growing time.
    """

    def __init__(self, count: Callable[[], int], cooldown_s: tuple[int, int] | None) -> None:
        """`cooldown_s`: the first and the longest time out of use; None: for ever."""
        self.count, self._cooldown_s = count, cooldown_s
        self._failures: dict[int, int] = {}
        self._until_s: dict[int, float] = {}

    def fail(self, slot: int, now_s: float) -> None:
        """A worker has failed."""
        self._failures[slot] = self._failures.get(slot, 0) + 1
        self._until_s[slot] = float("inf")
        if self._cooldown_s is not None:
            first, longest = self._cooldown_s
            self._until_s[slot] = now_s + min(longest, first * 2 ** (self._failures[slot] - 1))

    def usable(self, now_s: float) -> list[int]:
        """Slots for new workers, in order."""
        return [slot for slot in range(self.count()) if self._until_s.get(slot, 0.0) <= now_s]
