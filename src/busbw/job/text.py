"""A running job: the conclusion in one line, then the evidence."""

from busbw.job.types import JobReport
from busbw.ui.columns import wrapped


def text(report: JobReport, width: int | None = None) -> str:
    """The line, the evidence and the fix."""
    lines = [
        f"{report.verdict.name:7} {report.message}",
        *(f"        seen: {one}" for one in report.evidence),
    ]
    lines += [f"        fix: {report.fix}"] if report.fix else []
    return wrapped("".join(f"{line}\n" for line in lines), width)
