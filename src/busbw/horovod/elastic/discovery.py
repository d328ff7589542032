"""The slots of this host: a fixed number, or the answers of a host discovery script, which is run every second."""

import subprocess
import sys
import threading
from collections.abc import Callable

from busbw.core.errors import BusbwError, UsageError
from busbw.launch import hosts
from busbw.launch.remote import is_local

PERIOD_S, SCRIPT_LIMIT_S = 1.0, 30.0


def parse(text: str, default_slots: int, source: str) -> int:
    """The number of slots in a script's output: lines of `host:slots`, or of `host` with `default_slots`.

    Raises UsageError for a line that is not a host, and for another host.
    """
    slots = 0
    for line in filter(None, (line.strip() for line in text.splitlines())):
        for host in hosts.parse_hosts(line):
            if not is_local(host.name):
                raise UsageError(
                    f"{source}: {host.name} is not this host, and the workers of an elastic job run on one host",
                    "for several hosts, start the script with torchrun, which restarts all ranks from the last commit",
                )
            slots += host.slots or default_slots
    return slots


class Script:
    """Runs a discovery script from a thread. `slots()` is its last valid answer."""

    def __init__(self, command: str, default_slots: int) -> None:
        """Runs it once.

        Raises UsageError if that fails.
        """
        self._command, self._default = command, default_slots
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
        source = f"--host-discovery-script {self._command}"
        hint = "let it print one line per host: localhost:4"
        try:
            done = subprocess.run(
                [self._command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SCRIPT_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"{source} has not ended within {SCRIPT_LIMIT_S:g} s", hint) from None
        except OSError as error:
            raise UsageError(f"{source} cannot be run: {error.strerror}", f"chmod +x {self._command}; it needs a #! line") from error
        if done.returncode:
            raise UsageError(f"{source} ended with {done.returncode}: {done.stderr.strip()[-200:]}", hint)
        return parse(done.stdout, self._default, source)

    def _repeat(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            try:
                self._slots = self._ask()
            except BusbwError as error:  # the last answer stays valid
                sys.stderr.write(f"busbw horovodrun: {error}\n")


class Slots:
    """Slots that workers may use. A slot whose worker failed is out of use, for ever or for a growing time."""

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
