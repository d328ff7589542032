"""The launch doctor's output: a line for each stage, and the command lines that work."""

from busbw.check.types import Diagnosis, Stage
from busbw.core.finding import Verdict
from busbw.ui.columns import wrapped


def stage(one: Stage, width: int | None = None) -> str:
    """One stage; with evidence and fix unless it passed."""
    lines = [f"{one.verdict.name:7} {one.name}: {one.message}"]
    if one.verdict in (Verdict.FAIL, Verdict.WARN):
        lines += [f"        seen: {text}" for text in one.evidence if text]
        lines += [f"        fix: {one.fix}"] if one.fix else []
    return wrapped("".join(f"{line}\n" for line in lines), width)


def commands(found: Diagnosis) -> str:
    """The command lines, unbroken, so that they can be copied."""
    return "".join(f"\n{name}:\n  {line}\n" for name, line in found.commands.items())


def text(found: Diagnosis, width: int | None = None) -> str:
    """All stages and command lines."""
    return "".join(stage(one, width) for one in found.stages) + commands(found)
