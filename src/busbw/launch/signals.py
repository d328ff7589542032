"""Signals that end a process, in words."""

import signal

_HINTS: dict[int, str] = {
    signal.SIGKILL: "ssh {host} dmesg | tail   (out of memory, or killed by a user)",
    signal.SIGBUS: (
        "df -h /dev/shm   (shared memory is full: containers need --shm-size or --ipc=host)"
    ),
    signal.SIGXCPU: "ulimit -t   (the limit of CPU time has passed): raise it",
    signal.SIGXFSZ: "ulimit -f   (a file, or shared memory, grew beyond this limit): raise it",
    signal.SIGTERM: "a user or the scheduler terminated it: request more time",
}
_OTHER_HINT = "ulimit -c unlimited, run again, and read the core file on {host}"


def signal_name(number: int) -> str:
    """`SIGKILL`; `unknown` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def signal_words(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    return f"signal {number} ({signal_name(number)})"


def signal_hint(number: int, host: str) -> str:
    """How to find out why a signal ended a process on `host`."""
    return _HINTS.get(number, _OTHER_HINT).format(host=host)
