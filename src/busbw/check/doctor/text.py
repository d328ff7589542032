"""The launch doctor's output: a line for each stage, and the command lines that work."""

from busbw.check.types import Diagnosis, Stage
from busbw.core.finding import Verdict
from busbw.ui.columns import wrapped


def stage(stage_done: Stage, width: int | None = None) -> str:
    """One stage; with evidence and fix if it failed or warns."""
    lines = [f"{stage_done.verdict.name:7} {stage_done.name}: {stage_done.message}"]
    if stage_done.verdict in (Verdict.FAIL, Verdict.WARN):
        lines += [f"        seen: {text}" for text in stage_done.evidence if text]
        lines += [f"        fix: {stage_done.fix}"] if stage_done.fix else []
    return wrapped("".join(f"{line}\n" for line in lines), width)


def commands(diagnosis: Diagnosis) -> str:
    """The command lines, unbroken, so that they can be copied."""
    return "".join(f"\n{name}:\n  {line}\n" for name, line in diagnosis.commands.items())


def text(diagnosis: Diagnosis, width: int | None = None) -> str:
    """All stages, then the command lines."""
    return "".join(stage(stage_done, width) for stage_done in diagnosis.stages) + commands(
        diagnosis
    )
