"""What commands that start ranks do with the options of `shared.run_options` and --limit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

from busbw.cli.keep import finishing, keep
from busbw.cli.options.parameters import argv
from busbw.cli.options.shared import result_file, take_where
from busbw.cli.output import AtEnd, JsonOutput, RunOutput, exit_code, print_command
from busbw.core.result import Outcome
from busbw.measure.job import Job
from busbw.measure.record import RunRecord
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget

Start = Callable[[Any, LaunchTarget, RunOutput], Outcome | None]


class JobFields(TypedDict):
    """The fields of a job that these options set."""

    argv: list[str]
    net: str
    limit_s: float
    launch_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The values of these options."""

    where: LaunchTarget
    job_fields: JobFields
    format_name: str
    json_name: str
    force: bool
    history: bool
    dry_run: bool

    def print_at_end(
        self,
        job: Job,
        render: Callable[[Any, int | None], str],
        *,
        start: Start = run,
        save_unasked: bool = False,
    ) -> int:
        """Run the job, print its result by `render` or as JSON, and return the exit code.

        With --dry-run the command is printed.
        """
        if self.dry_run:
            return print_command(job, self.where)

        def output(record: RunRecord) -> RunOutput:
            if self.format_name == "json":
                return JsonOutput(record, save_unasked=save_unasked)
            return AtEnd(record, render, save_unasked=save_unasked)

        return int(exit_code(self.measure(job, output, start)))

    def measure(
        self, job: Job, output: Callable[[RunRecord], RunOutput], start: Start = run
    ) -> Outcome | None:
        """Run the job, write its file, and keep it in the history.

        None on ranks of another launcher's job, except rank 0.
        """
        record = RunRecord(result_file(self.json_name), overwrite=self.force)
        with finishing(record, partial(keep, asked=self.history)):
            return start(job, self.where, output(record))


def take_run_options(fields: dict[str, Any]) -> RunOptions:
    """Take these options out of a command's `fields`. UsageError for places that exclude each
    other.
    """
    format_name, json_name = fields.pop("format_name"), fields.pop("json_name")
    return RunOptions(
        where=LaunchTarget(**take_where(fields)),
        job_fields=JobFields(
            argv=argv(),
            net=fields.pop("net") or "",
            limit_s=fields.pop("limit_s"),
            launch_limit_s=fields.pop("launch_limit_s"),
        ),
        format_name="json" if json_name == "-" else format_name,
        json_name=json_name,
        force=fields.pop("force"),
        history=fields.pop("history"),
        dry_run=fields.pop("dry_run"),
    )
