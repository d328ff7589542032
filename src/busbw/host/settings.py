"""Parsers of small formats of the kernel and systemd."""

import re

from busbw.host.interfaces import number

UNLIMITED = "unlimited"
MAX_CPUS = 1 << 16  # far above the 8192 that Linux allows


def soft_limit(text: str, name: str) -> str | None:
    """The soft limit `name`, such as `Max open files`, in the text of /proc/PID/limits.

    It is a number or `unlimited`; None if the text has no such limit.
    """
    line = next((line for line in text.splitlines() if line.startswith(f"{name} ")), None)
    values = line.removeprefix(name).split() if line else []
    return values[0] if values and (values[0] == UNLIMITED or values[0].isdecimal()) else None


def capabilities(text: str) -> set[int]:
    """The effective capabilities in /proc/PID/status, by the numbers of linux/capability.h."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", text, re.MULTILINE)
    return {bit for bit in range(64) if int(match[1], 16) >> bit & 1} if match else set()


def bracketed(text: str) -> str | None:
    """The choice in a file such as `always [madvise] never`."""
    match = re.search(r"\[(\S+)\]", text)
    return match.group(1) if match else None


def named_counts(text: str) -> dict[str, int]:
    """Lines of a name and a number, as in memory.events; other lines are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def numbers(text: str) -> list[int]:
    """The integers of a line, as in tcp_rmem; empty if a word is no integer."""
    values = []
    for word in text.split():
        value = number(word)
        if value is None:
            return []
        values.append(value)
    return values


def cpu_set(text: str) -> set[int]:
    """CPUs of a kernel list such as `0-3,8`; empty for a malformed one."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(last) >= MAX_CPUS:
            return set()
        cpus |= set(range(int(first), int(last) + 1))
    return cpus


def logind_setting(texts: list[str], name: str) -> str | None:
    """The value of a setting of logind; None if no text has it.

    `texts` are logind.conf and its drop-ins in their order: the last one that sets it counts. If
    none does, it is the default, which the file shows as a comment.
    """
    pattern = re.compile(rf"^(#?)\s*{name}\s*=\s*(\S*)\s*$", re.MULTILINE)
    matches = [match for text in texts for match in pattern.findall(text)]
    values = [value for comment, value in matches if not comment]
    if values:
        return str(values[-1])
    return str(matches[0][1]) if matches else None


def uptime(text: str) -> float:
    """Seconds since boot in the text of /proc/uptime; 0 if it has another form."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match.group()) if match else 0.0
