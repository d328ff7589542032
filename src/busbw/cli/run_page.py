"""The page of one run: `busbw run --html FILE`."""

from pathlib import Path

from busbw.cli.keep import keep
from busbw.core.errors import UsageError
from busbw.core.result import Outcome, Result
from busbw.measure.record import check_writable, save


def page_target(name: str, *, overwrite: bool) -> Path | None:
    """The file that --html names, None without it; UsageError if it could not be written."""
    if not name:
        return None
    if name == "-":
        raise UsageError("--html -: the page is a file", "name one, like --html run.html")
    check_writable(Path(name), overwrite=overwrite, what=f"--html {name}")
    return Path(name)


def keep_and_write_page(result: Outcome, asked: bool, file: Path | None, name: str) -> None:
    """Keep a finished run in the history if that is `asked` for, then write its page."""
    keep(result, asked=asked)
    if file is not None and isinstance(result, Result):
        write_page(result, file, name)


def write_page(result: Result, file: Path, name: str) -> None:
    """Write the page of `busbw report` on the result, called `name`; NoMeasurement if it fails."""
    from busbw.report.page import page  # plots and tables, which a run without it need not import

    save(page([(name, result)]), file, "make room, or name another place with --html", shared=True)
