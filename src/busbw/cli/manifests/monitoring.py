"""`busbw manifest` for monitoring: systemd units, Prometheus' alert rules, Grafana's dashboard."""

import contextlib
import os
import shlex
import stat
from pathlib import Path

import click

from busbw.cli.manifests.words import every_option, parse_check, program_option
from busbw.cli.streams import print_err, print_out
from busbw.launch.manifest import alerts, filler, systemd
from busbw.launch.manifest.systemd import UnitSettings
from busbw.measure.record import check_writable, save
from busbw.watch.exporter import DEFAULT_ADDRESS, address

_LINE_BYTES = 4096
_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.command(
    "prometheus-rules", context_settings=_SETTINGS, short_help="Alert rules for Prometheus."
)
@every_option
def rules_command(every_s: int) -> int:
    """Print alert rules for what `busbw check` and `busbw watch` export: `busbw manifest
    prometheus-rules > /etc/prometheus/busbw-rules.yml`.

    `--every` is that of the units: verdicts are stale after six times as long.
    """
    print_out(alerts.rules(every_s))
    return 0


@click.command(
    "grafana-dashboard",
    context_settings=_SETTINGS,
    short_help="A dashboard of all hosts for Grafana.",
)
def dashboard_command() -> int:
    """Print a dashboard to import into Grafana: `busbw manifest grafana-dashboard > busbw.json`."""
    print_out(filler.plain("grafana-dashboard.json"))
    return 0


@click.command(
    "systemd",
    context_settings=_SETTINGS,
    short_help="systemd units that watch and check this host.",
)
@click.option(
    "--into",
    metavar="DIRECTORY",
    default="",
    help="write the units into this directory: /etc/systemd/system  [default: print them]",
)
@click.option("--force", is_flag=True, help="with --into: replace units that exist")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="address of the metrics of busbw watch",
)
@click.option(
    "--token-file",
    metavar="FILE",
    default="",
    help="file with the token that scrapers must send; required beyond loopback",
)
@click.option(
    "--textfile-directory",
    "directory",
    metavar="DIRECTORY",
    default="/var/lib/prometheus/node-exporter",
    show_default=True,
    help="directory of node_exporter's textfile collector",
)
@every_option
@click.option(
    "--check-options",
    "check",
    default=shlex.join(systemd.CHECK),
    show_default=True,
    help="options of busbw check",
)
@program_option
def systemd_command(
    into: str,
    force: bool,
    listen: str,
    token_file: str,
    directory: str,
    every_s: int,
    check: str,
    program: str,
) -> int:
    """Print systemd units: busbw-watch.service serves counters to Prometheus, and
    busbw-check.timer writes the verdicts of `busbw check` for node_exporter.

    `sudo busbw manifest systemd --into /etc/systemd/system`
    """
    address(listen, token_file)
    service = UnitSettings(
        program=program,
        listen=listen,
        token_file=token_file,
        directory=directory,
        every_s=every_s,
        check=parse_check(check),
    )
    texts = systemd.units(service)
    if into:
        _write(texts, Path(into), force=force)
        _warn_if_missing(service)
    else:
        print_out("\n".join(f"# {name}\n{text}" for name, text in texts.items()))
    _warn_if_private(Path(service.program))
    return 0


def _write(texts: dict[str, str], folder: Path, *, force: bool) -> None:
    """Write the units; UsageError before any is written if one exists or could not be written."""
    for name in texts:
        check_writable(folder / name, overwrite=force, what=f"--into {folder}/{name}")
    for name, text in texts.items():
        save(text.encode(), folder / name, "make room in the directory", shared=True)
        print_err(f"wrote {folder / name}")
    print_err("next: systemctl daemon-reload")
    print_err("next: systemctl enable --now busbw-watch.service busbw-check.timer")


def _warn_if_missing(service: UnitSettings) -> None:
    """Warn if this host lacks what a unit needs: systemd would name the failed step alone."""
    if service.token_file and not Path(service.token_file).is_file():
        print_err(
            f"note: --token-file {service.token_file}: no such file; busbw-watch.service does not"
            " start without it"
        )
    if not Path(service.directory).is_dir():
        print_err(
            f"note: --textfile-directory {service.directory}: no such directory;"
            " busbw-check.service does not start without it"
        )


def _warn_if_private(program: Path) -> None:
    """Warn if the user of busbw-watch.service cannot run the program, or its interpreter."""
    for path in (program, _interpreter(program)):
        for folder in path.resolve().parents:
            if folder.is_dir() and not folder.stat().st_mode & stat.S_IXOTH:
                print_err(
                    f"note: {path}: busbw-watch.service runs as a user that cannot enter {folder};"
                    " install busbw and its Python elsewhere, and give --program"
                )
                return


def _interpreter(program: Path) -> Path:
    """The program in the first line of a script; the program itself if it is none."""
    with contextlib.suppress(OSError), program.open("rb") as file:
        first = file.readline(_LINE_BYTES).split()
        if first and first[0].startswith(b"#!/"):
            return Path(os.fsdecode(first[0][2:]))
    return program


COMMANDS = (rules_command, dashboard_command, systemd_command)
