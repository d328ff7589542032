"""The rules of the Trace Event Format ("JSON array") that viewers rely on."""

import json

NEEDED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "M": {"name", "pid", "args"},
}
METADATA = {"process_name", "process_sort_index"}


def read(text):
    """The events of a file. The closing bracket may be absent, after a kill."""
    return json.loads(text if text.rstrip().endswith("]") else text + "]")


def find_violations(events):
    """Violations of the format, as text."""
    violations = []
    for event in events:
        missing = NEEDED.get(event.get("ph"), {"ph"}) - set(event)
        if missing:
            violations.append(f"{event}: without {missing}")
        if any(not isinstance(event.get(key, 0), int) for key in ("pid", "tid")):
            violations.append(f"{event}: pid and tid are integers")
        if any(
            not (isinstance(event.get(key, 0), int | float) and event.get(key, 0) >= 0)
            for key in ("ts", "dur")
        ):
            violations.append(f"{event}: ts and dur are microseconds")
        if event.get("ph") == "i" and event.get("s") not in ("g", "p", "t"):
            violations.append(f"{event}: an instant is global, or of a process or thread")
        if event.get("ph") == "M" and event.get("name") not in METADATA:
            violations.append(f"{event}: unknown metadata")
    tracks: dict = {}
    for event in (event for event in events if event.get("ph") == "X"):
        open_until = tracks.setdefault((event.get("pid"), event.get("tid")), [])
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        if open_until and event["ts"] + event["dur"] > open_until[-1] + 1e-3:
            violations.append(f"{event}: overlaps another of its thread without being inside it")
        open_until.append(event["ts"] + event["dur"])
    named_pids = {event["pid"] for event in events if event.get("name") == "process_name"}
    violations += [
        f"{event}: its process has no name"
        for event in events
        if event.get("pid") not in named_pids
    ]
    return violations
