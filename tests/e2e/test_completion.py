"""Completion in real shells: commands are typed at a terminal, then Tab."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from busbw.cli.completion import BY_COMMAND, BY_PARAMETER
from busbw.cli.main import cli

pytestmark = pytest.mark.usefixtures("ranks_are_forks")

SOURCE = Path(__file__).parents[2] / "src"
LIMIT_S = 120  # several starts of busbw beside other programs
SHELLS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
READY = {
    "bash": 'PS1="ready> "; source <(busbw completion bash)',
    "zsh": 'PS1="ready> "; autoload -U compinit; compinit -u -D; source <(busbw completion zsh)',
}
# What is typed before Tab, and what Tab adds.
TYPED = (
    ("busbw history plo", "t "),
    ("busbw run all_reduce --engi", "ne "),
    ("busbw check --only pcie-ac", "s"),
    ("busbw report my_re", "sult.json "),
)
# click's script for fish cuts values at a comma
LISTED = ("busbw train vgg16 --compare none,torch-p", "owersgd ")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a result, and `busbw` on its own path."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "busbw"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m busbw "$@"\n')
    program.chmod(0o755)
    (tmp_path / "my_result.json").write_text("{}")
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    own = {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCE),
        "TERM": "dumb",
        "LC_ALL": "C",
    }
    return {
        **os.environ,
        **own,
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


class Terminal:
    """An interactive shell on a new terminal."""

    def __init__(self, words: list[str], home: Path) -> None:
        lead, follow = pty.openpty()
        self.lead, self.seen = lead, ""
        self.shell = subprocess.Popen(
            words,
            stdin=follow,
            stdout=follow,
            stderr=follow,
            cwd=home,
            env=environment(home),
            start_new_session=True,
        )
        os.close(follow)

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self.lead, text.encode())

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + LIMIT_S
        while text not in self.seen:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.lead], [], [], left)[0], (
                f"no {text!r} in {self.seen!r}"
            )
            self.seen += os.read(self.lead, 4096).decode(errors="replace")

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait(LIMIT_S)
        os.close(self.lead)


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_commands_options_and_values(shell: str, home: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}: make test-tools")
    terminal = Terminal(SHELLS[shell], home)
    try:
        terminal.type(f"{READY[shell]}; echo set-''up\n")
        terminal.wait_for("set-up")
        for typed, completion in (*TYPED, LISTED):
            terminal.type("\x15" + typed)
            terminal.wait_for(typed)
            terminal.type("\t")
            terminal.wait_for(completion)
    finally:
        terminal.close()


def test_fish_completes_them_with_descriptions(home: Path) -> None:
    if not shutil.which("fish"):
        pytest.skip("no fish: make test-tools")
    lines = "".join(f"complete -C {shlex.quote(typed)}\n" for typed, _ in TYPED)
    script = f"busbw completion fish | source\n{lines}complete -C 'busbw check --only BW070'\n"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    completions = [line.split("\t")[0] for line in done.stdout.splitlines()]
    words = [(typed + completion).split()[-1] for typed, completion in TYPED]
    assert [
        word for word in words if not any(completion.startswith(word) for completion in completions)
    ] == []
    assert any(line.startswith("BW070\t") and len(line) > 10 for line in done.stdout.splitlines())


def test_stored_runs_are_completed_with_their_machine(home: Path) -> None:
    variables = {
        "_BUSBW_COMPLETE": "fish_complete",
        "COMP_WORDS": "busbw history rm",
        "COMP_CWORD": "",
    }
    words = [sys.executable, "-m", "busbw"]
    none = subprocess.run(
        words,
        env={**environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert (none.stdout.strip(), none.stderr) == ("", "")
    result = SOURCE.parent / "benchmarks" / "all_reduce_2xh200_202611" / "run_1.json"
    subprocess.run(
        [*words, "history", "add", result],
        env=environment(home),
        timeout=LIMIT_S,
        check=True,
        capture_output=True,
    )
    completed = subprocess.run(
        words,
        env={**environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert completed.stdout.startswith("plain,1\t2026-11-21 23:14:02 all_reduce, ")


def test_every_parameter_of_the_table_exists() -> None:
    names = set()
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        parts = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        names |= {(name, parameter.name) for part in parts for parameter in part.params}
    assert set(BY_PARAMETER) - {parameter for _, parameter in names} == set()
    assert set(BY_COMMAND) - names == set()
