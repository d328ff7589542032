"""Metrics in Prometheus' text format (version 0.0.4).

An exporter serves them, and node_exporter's textfile collector reads them from files.
"""

from busbw.core.unseen import escape_line

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE = "counter", "gauge"
Labels = tuple[tuple[str, str], ...]


class MetricText:
    """Lines by metric: the format demands that all lines of a metric come together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, kind: str, meaning: str, labels: Labels, value: float) -> None:
        """Add one value. `kind` and `meaning` are those of the metric's first value."""
        if name not in self._lines:
            self._lines[name] = [
                f"# HELP {name} {_escape(meaning, quote=False)}",
                f"# TYPE {name} {kind}",
            ]
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        number = f"{value:.15g}" if isinstance(value, float) else value
        self._lines[name].append(f"{name}{{{pairs}}} {number}" if labels else f"{name} {number}")

    def text(self) -> str:
        """All lines, metrics in the order in which they were added."""
        return "".join(f"{line}\n" for lines in self._lines.values() for line in lines)


def _escape(text: str, *, quote: bool = True) -> str:
    lines = map(escape_line, text.split("\n"))  # the format has an escape of its own for \n alone
    text = "\\n".join(line.replace("\\", "\\\\") for line in lines)
    return text.replace('"', '\\"') if quote else text
