"""`--listen` and `--token-file`: metrics of a watch for Prometheus."""

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from busbw.check.shell_words import word
from busbw.cli.options.parameters import File
from busbw.cli.streams import print_err
from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.ui.metric_text import CONTENT_TYPE
from busbw.watch.exporter import Exporter, address, is_loopback

MAX_TOKEN = 1 << 16
MIN_TOKEN = 8  # characters, beyond loopback


def metrics_options(default: str) -> Callable[[Any], Any]:
    """Give a command both options; `default` is the address of --listen without a value."""
    listen = click.option(
        "--listen",
        default="",
        is_flag=False,
        flag_value=default,
        metavar="[HOST:PORT]",
        help=(
            "serve metrics to Prometheus, and print nothing unless --format is given  [without a"
            f" value: {default}]"
        ),
    )
    token_file = click.option(
        "--token-file",
        type=File(),
        help="file with the token that scrapers must send; required beyond loopback",
    )
    return lambda command: listen(token_file(command))


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where metrics are served, and the token that scrapers must send, if any."""

    host: str
    port: int
    token: str

    def serve(self, page: Callable[[], bytes], undo: ExitStack) -> None:
        """Serve `page()` until `undo` is closed."""
        exporter = Exporter(self.host, self.port, page, CONTENT_TYPE, self.token)
        undo.callback(exporter.close)
        print_err(f"note: serving {exporter.url}")


def metrics_address(listen: str, token_file: Path | None) -> MetricsAddress | None:
    """What the options say, None without --listen; UsageError if others could read the metrics."""
    token = _token(token_file)
    if not listen:
        return None
    host, port = address(listen, token)
    if token_file and not is_loopback(host):
        _refuse_guessable(token_file, token)
    return MetricsAddress(host, port, token)


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        with file.open(encoding="utf-8") as opened:
            _refuse_untrusted(file, os.fstat(opened.fileno()))
            text = opened.read(MAX_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--token-file {file}: {getattr(error, 'strerror', None) or error}",
            "name a file with the token",
        ) from error
    if not text:
        raise UsageError(f"--token-file {file}: it is empty", "write the token into it")
    return text


def _refuse_untrusted(file: Path, status: os.stat_result) -> None:
    """UsageError if other users could have written the token."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"--token-file {file}: mode {mode:04o}, other users can change the token",
            f"chmod 600 {word(str(file))}",
        )
    if status.st_uid not in (os.geteuid(), 0):
        owner = f"owned by user {status.st_uid}, who is neither you nor root"
        quoted = word(str(file))
        raise UsageError(
            f"--token-file {file}: mode {mode:04o}, {owner}",
            f"chown {os.geteuid()} {quoted}; chmod 600 {quoted}",
        )


def _refuse_guessable(file: Path, token: str) -> None:
    """UsageError if users of this host could have read the token, or others could guess it."""
    mode = stat.S_IMODE(file.stat().st_mode)
    quoted = word(str(file))
    if mode & stat.S_IROTH:
        raise UsageError(
            f"--token-file {file}: mode {mode:04o}, all users can read the token",
            f"chmod 600 {quoted}",
        )
    if len(token) < MIN_TOKEN:
        raise UsageError(
            f"--token-file {file}: a token of {counted(len(token), 'character')} can be guessed",
            f"(umask 077; openssl rand -hex 32 > {quoted})",
        )
