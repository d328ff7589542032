"""Recording a host: every read made through a Recording is kept, and its archive gives the same answers later, elsewhere."""

import base64
import json
from collections.abc import Callable
from typing import Any

from busbw.host.source import SCHEMA, Reading, Source


class Recording:
    """A Source that passes reads on to `source` and keeps what came back."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._paths: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, dict[str, Any]] = {}

    def read(self, path: str) -> Reading:
        """Contents of a file, kept."""
        reading = self._source.read(path)
        self._paths.setdefault(path, {}).update(_fields(reading))
        return reading

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a directory, kept where there are any."""
        names = self._source.names(path)
        if names:
            self._paths.setdefault(path, {}).update(names=list(names))
        return names

    def link(self, path: str) -> str | None:
        """Target of a symbolic link, kept where there is one."""
        target = self._source.link(path)
        if target is not None:
            self._paths.setdefault(path, {}).update(link=target)
        return target

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call, kept."""
        reading = self._source.call(name, live)
        self._calls[name] = _fields(reading)
        return reading

    def archive(self) -> str:
        """All that was read so far, as the text `parse_archive` takes."""
        lines: list[dict[str, Any]] = [{"schema": SCHEMA}]
        lines += [{"path": path, **fields} for path, fields in sorted(self._paths.items())]
        lines += [{"call": name, **fields} for name, fields in sorted(self._calls.items())]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _fields(reading: Reading) -> dict[str, str]:
    if reading.data is None:
        return {"error": reading.reason}
    try:
        text = reading.data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(reading.data).decode("ascii")}
    return {"text": text}
