"""`busbw deploy`: copies busbw to other hosts as a single file."""

import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from busbw.cli.options.parameters import File, Seconds, not_empty
from busbw.cli.options.shared import hosts_options
from busbw.cli.streams import print_err, print_out
from busbw.cli.terminal import width
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.host_ranges import fold
from busbw.core.program import single_file
from busbw.launch import deploy, remote
from busbw.launch.deploy import HOST_PLACEHOLDER, DeployOutcome
from busbw.launch.hostfile import given_hosts
from busbw.launch.hosts import LaunchHost, hosts_text

BUILT_FILE = Path(
    ".local", "bin", "busbw.pyz"
)  # in the home directory: what an installed busbw builds
LABEL_WIDTH = 8  # columns before a text


@click.command("deploy", context_settings={"help_option_names": ["-h", "--help"]})
@hosts_options("hosts to copy to: h1,h2,h3 or gpu[01-16]")
@click.option(
    "--file",
    type=File(),
    help="single file to copy  [default: the one that runs, else one built from this installation]",
)
@click.option(
    "--to",
    default="",
    callback=not_empty,
    help="path on the hosts  [default: that of the file here]",
)
@click.option(
    "--python",
    default="",
    callback=not_empty,
    help="Python on the hosts  [default: the one that runs the single file here, else python3]",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=120.0,
    show_default=True,
    help="give up after this time on a host",
)
def command(
    hosts: str, hostfile: Path | None, file: Path | None, to: str, python: str, limit_s: float
) -> int:
    """Copy busbw to other hosts as a single file, and start it there once.

    It needs ssh without a password, and Python 3.11 or newer on the hosts; nothing is installed.
    busbw run, check and link with --hosts then find it, if they are started from the same path
    here. A host where it does not start keeps what it had.
    """
    if bool(hosts) == bool(hostfile):
        raise UsageError(
            "deploy: give the hosts once", "busbw deploy --hosts h1,h2, or --hostfile FILE"
        )
    names = [host.name for host in given_hosts(hosts, hostfile)]
    local, target = _file(file, to)
    words = [python or _default_python()]
    outcomes = deploy.deploy(names, local, target, words[0], limit_s)
    for outcome in outcomes:
        print_out(_lines(outcome, target))
    done = [host for outcome in outcomes if not outcome.problem for host in outcome.hosts]
    if done:
        _say_next(done, [*(words if python else []), target])
    failed = [outcome for outcome in outcomes if outcome.problem]
    if failed:
        lost = [host for outcome in failed for host in outcome.hosts]
        raise NoMeasurement(
            f"busbw was not deployed to {len(lost)} of {len(names)} hosts: {fold(lost)}",
            "mend what the lines above name, then deploy to --hosts"
            f" {shlex.quote(hosts_text(list(map(LaunchHost, lost))))}",
        )
    return int(Exit.OK)


def _file(file: Path | None, to: str) -> tuple[Path, str]:
    """The single file here, which is built if there is none, and its path on the hosts."""
    running = single_file()
    if file is None and not running:
        path = Path(to or Path.home() / BUILT_FILE).absolute()
        deploy.build_file(path)
        print_err(
            f"note: built {path} for Python {sys.version_info.major}.{sys.version_info.minor}"
        )
        return path, str(path)
    path = (file or Path(running)).absolute()
    deploy.check_file(path)
    return path, str(Path(to).absolute()) if to else str(path)


def _default_python() -> str:
    return sys.executable if single_file() else "python3"


def _lines(outcome: DeployOutcome, target: str) -> str:
    """What happened on some hosts, and a fix if it failed; wrapped for the terminal."""
    hosts = fold(outcome.hosts)
    if outcome.started is not None:
        started = outcome.started
        python = f"Python {started.python} ({started.executable})"
        return _labeled("ok", f"{hosts}: {target}, busbw {started.busbw}, {python}")
    problem = outcome.problem
    if len(outcome.hosts) == 1:
        problem = problem.replace(HOST_PLACEHOLDER, hosts)
    fix = outcome.hint.replace(HOST_PLACEHOLDER, outcome.hosts[0])
    return _labeled("failed", f"{hosts}: {problem}") + _labeled("", f"fix: {fix}")


def _labeled(label: str, text: str) -> str:
    wrapper = textwrap.TextWrapper(
        width=width() or LABEL_WIDTH + len(text) + 1,
        initial_indent=f"{label:<{LABEL_WIDTH}}",
        subsequent_indent=" " * LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.fill(text) + "\n"


def _say_next(hosts: Sequence[str], words: Sequence[str]) -> None:
    """What to run now; a note if this host has no busbw at that path."""
    target = words[-1]
    if not Path(target).exists() and not any(map(remote.is_local, hosts)):
        print_err(
            f"note: this host has no {target}; add localhost to --hosts to start it from here"
        )
    line = shlex.join([*words, "check", "--hosts", hosts_text(list(map(LaunchHost, hosts)))])
    print_out(f"\n{'run':<{LABEL_WIDTH}}{line}\n")
