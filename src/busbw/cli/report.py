"""`busbw report FILE...`: results as one HTML page to send or to keep."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import click

from busbw.cli import stored_runs
from busbw.cli.file_kinds import SUFFIXES, system_option, table_option
from busbw.cli.options.parameters import File, not_a_format, not_empty
from busbw.cli.output import exit_code
from busbw.cli.report_files import compared, expand, gather
from busbw.cli.stored_runs import TakesRuns
from busbw.cli.streams import print_out
from busbw.core.comparison import Comparison
from busbw.core.errors import Exit, UsageError, worst
from busbw.core.result import Outcome, Result
from busbw.host.signature import NAMESPACE, sign
from busbw.host.signature import signer as signer_line
from busbw.measure.record import check_writable, save
from busbw.report.other_reports import page as page_of_others
from busbw.report.page import page
from busbw.report.rows import ReportInput, alike
from busbw.stats.compare import compare

DEFAULT = "report.html"


@click.command("report", cls=TakesRuns, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--output",
    callback=not_a_format,
    help=(
        "write the page to this file, - = stdout; by default FILE.html next to the first FILE (with"
        " its full name if another result differs only in its suffix), or report.html in a folder"
    ),
)
@click.option(
    "--collective",
    default=None,
    callback=not_empty,
    help="the collective of a log that does not name it",
)
@table_option
@system_option
@click.option(
    "--sign",
    "key",
    type=File(),
    metavar="KEY",
    help="put the results into the page and sign it with this OpenSSH key: FILE.sig",
)
def command(
    files: tuple[str, ...],
    output: str | None,
    collective: str | None,
    table: int | None,
    system: str | None,
    key: Path | None,
) -> int:
    """Write FILE... (- = stdin) as one self-contained HTML page, and print its path.

    Reads what busbw show reads: sweeps, results of backends, overlap and moe, trainings, plans,
    replays, patterns, checks, tests of links, counters of links, snapshots. Up to 8 sweeps fit.
    Those of one collective, engine and number of ranks share plots; those that are also of the same
    hosts and devices and have a size in common are compared with the first of them. Snapshots and
    checks of several machines share a section, which says what differs between them. A directory
    stands for its files that end in .json, .jsonl, .log, .table or .txt, sweeps by the time of the
    run; traces of several ranks are one section; its folders are named, and not read. Of several
    files those that cannot be read are named and left out.

    With --sign the command that verifies the signature is printed too.
    """
    target = _target(files, output)
    if target is not None:
        check_writable(target, what=str(target))
    if key is not None and target is None:
        raise UsageError(
            "--sign signs a file, and --output - is stdout", "name a file with --output"
        )
    sweeps, others = gather(files, collective, table)
    if system is not None:
        others = compared(others, system, files)
    if key is not None and others.files:
        raise UsageError(f"--sign is for sweeps, and {others.files[0][0]} is none", "leave it out")
    if sweeps:
        names = _names([file for file, _ in sweeps])
        named = [(name, result) for name, (_, result) in zip(names, sweeps, strict=True)]
        html = page(named, _comparisons(named), embed=key is not None, others=others)
    else:
        html = page_of_others(others)
    if target is None:
        print_out(html)
    else:
        save(html, target, "make room, or write to another place with --output", shared=True)
        print_out(f"{target}\n")
        if key is not None:
            print_out(_sign(target, key))
    codes = [Exit.BAD if others.skipped else Exit.OK]
    results: list[Outcome] = [result for _, result in sweeps]
    results += [one.held for _, one in others.files if isinstance(one.held, Outcome)]
    return int(worst(codes + [exit_code(result) for result in results]))


def _target(files: tuple[str, ...], output: str | None) -> Path | None:
    """Where the page goes, None for stdout; UsageError if that is one of the results."""
    if output == "-":
        return None
    first = Path(files[0])
    if output:
        target = Path(output)
    elif first.is_dir():
        target = first / DEFAULT
    elif stored_runs.NAME.fullmatch(files[0]):
        target = Path(f"{files[0].replace(':', '-')}.html")
    elif files[0] == "-":
        target = Path(DEFAULT)
    else:
        target = Path(f"{first}.html") if _shares_its_name(first) else first.with_suffix(".html")
    for file, _ in expand(files):
        if file != "-" and target.exists() and Path(file).exists() and target.samefile(file):
            raise UsageError(
                f"{target}: the page would overwrite a result",
                f"busbw report {file} --output {DEFAULT}",
            )
    return target


def _shares_its_name(file: Path) -> bool:
    """Whether another result beside it differs in the suffix alone: their pages would be one."""
    others = (file.with_suffix(suffix) for suffix in SUFFIXES if suffix != file.suffix)
    return any(other.exists() for other in others)


def _names(files: Sequence[str]) -> list[str]:
    """The names of the files, with their folders if two would read the same."""
    names = ["stdin" if file == "-" else Path(file).name for file in files]
    return [
        name if names.count(name) == 1 else file for name, file in zip(names, files, strict=True)
    ]


def _comparisons(named: Sequence[tuple[str, Result]]) -> dict[int, Comparison]:
    """Each result compared with the first one that is alike."""
    inputs = [ReportInput(index, name, result) for index, (name, result) in enumerate(named)]
    comparisons = {}
    for first, *others in alike(inputs):
        for other in others:
            comparisons[other.index] = compare([named[first.index]], [named[other.index]])
    return comparisons


def _sign(target: Path, key: Path) -> str:
    """Sign the page; returns the signature's path, and how a receiver verifies it."""
    signature, signer = sign(target, key), signer_line(key)
    arguments = f"-n {NAMESPACE} -s {quote(str(signature))} < {quote(str(target))}"
    if not signer:
        return f"{signature}\n\nverify with:\n  ssh-keygen -Y check-novalidate {arguments}\n"
    return (
        f"{signature}\n\n"
        "verify with:\n"
        f"  echo {quote(signer)} > signers\n"
        f"  ssh-keygen -Y verify -f signers -I {NAMESPACE} {arguments}\n"
    )
