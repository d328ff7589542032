"""The pages written by hand: commands parse, tables and outputs agree with their sources."""

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from busbw.cli import getopt
from busbw.cli.main import cli
from busbw.core.collectives import BY_NAME

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^(?:busbw|\w+_perf(?:_mpi)?)$")
LINE_OF_FINDING = re.compile(r"(PASS|WARN|FAIL|SKIP|UNKNOWN|NO DATA) | {8}[a-z]+( on \S+)?: ")
TERMINAL = 80  # columns, which output fits by default
ENDS = {"|", ">", "2>", "&&", ";", "#", "||"}


def written_pages() -> list[Path]:
    """Every page written by hand."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in pages if page.parent.name != "reference")


def code_blocks(text: str) -> list[tuple[str, str]]:
    """The language and the content of every code block."""
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The words of every busbw or nccl-tests command in `text`: lines of code blocks, and code
    in running text.
    """
    blocks = [block for block in code_blocks(text) if block[0] in {"sh", "console"}]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [
        line.removeprefix("$ ")
        for kind, block in blocks
        for line in block.splitlines()
        if kind == "sh" or line.startswith("$ ")
    ]
    return [
        words for line in [*lines, *re.findall(r"`([^`\n]+)`", prose)] for words in _commands(line)
    ]


def _commands(line: str) -> list[list[str]]:
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # output, or an apostrophe in a sentence
        return []
    cli_commands: list[list[str]] = []
    current: list[str] | None = None
    for word in words:
        if word in ENDS:
            current = None
        elif current is None and PROGRAM.match(word):
            current = [word]
            cli_commands.append(current)
        elif current is not None and word != "...":
            current.append(word)
    return cli_commands


PAGES = written_pages()
# without checks.md: its remedies mix words and commands
REFERENCE = [
    page for page in sorted((ROOT / "docs" / "reference").glob("*.md")) if page.name != "checks.md"
]


def problem(words: list[str]) -> str:
    """Why a command line would be refused, or nothing; options are parsed by the real commands,
    nothing is run.
    """
    program, *arguments = words
    if program != "busbw":
        is_program = program.removesuffix("_mpi").removesuffix("_perf") in BY_NAME
        return getopt.parse(arguments).message if is_program else f"no program {program}"
    if not arguments or arguments[0].startswith("-"):
        return "" if arguments in ([], ["--help"], ["--version"]) else f"unknown {arguments}"
    command = cli.get_command(click.Context(cli), arguments[0])
    if isinstance(command, click.Group) and len(arguments) > 1 and not arguments[1].startswith("-"):
        command, arguments = (
            command.get_command(click.Context(command), arguments[1]),
            arguments[1:],
        )
    if command is None:
        return f"no command {arguments[0]}"
    try:
        command.make_context(arguments[0], arguments[1:])
    except (
        click.MissingParameter,
        click.exceptions.NoArgsIsHelpError,
    ):  # a command named in running text, without its argument
        return ""
    except click.ClickException as error:
        return error.format_message()
    except click.exceptions.Exit:  # --help
        return ""
    return ""


def test_every_command_parses() -> None:
    problems = [
        (str(page.relative_to(ROOT)), words, problem(words))
        for page in (*PAGES, *REFERENCE)
        for words in commands(page.read_text(encoding="utf-8"))
    ]
    assert [found for found in problems if found[-1]] == []


def test_commands_that_record_a_machine_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    node_steps = importlib.import_module("node_steps")
    machine = node_steps.Machine(8, 128, node_steps.layouts(8))
    problems = []
    for step in node_steps.steps(machine, reference=""):
        words = shlex.split(step.command)
        if words[0] == "gpu_hosts.py":  # -n HOSTS -p RANKS RATE COMMAND
            words = ["busbw", *words[6:]]
        programs = [word for word in words if word.endswith(".py")]
        missing = [word for word in programs if not (ROOT / "benchmarks" / word).is_file()]
        problems += [(step.name, missing)] if missing else []
        problems += [(step.name, problem(words))] if words[0] == "busbw" else []
    assert [found for found in problems if found[-1]] == []


def test_commands_are_found_where_there_are_some() -> None:
    least = {
        "README.md": 10,
        "docs/tutorial.md": 10,
        "docs/how-to/replace-nccl-tests.md": 8,
        "docs/how-to/several-hosts.md": 8,
    }
    assert [
        page
        for page, number in least.items()
        if len(commands((ROOT / page).read_text(encoding="utf-8"))) < number
    ] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("busbw run all_reduce --no-such-option", "--no-such-option"),
        ("mpirun -n 2 busbw run all_reduce --json", "--json"),
        ("busbw rnu all_reduce", "no command"),
        ("busbw history erase", "no command erase"),
        ("busbw history plot --sizes 8", "--sizes"),
        ("busbw run all_reduce --iters many", "many"),
        ("NCCL_DEBUG=INFO all_reduce_perf -b 8 -Z 1 | tee log", "-Z"),
        ("all_redcue_perf -b 8", "no program"),
    ],
)
def test_a_command_that_does_not_parse_is_detected(line: str, message: str) -> None:
    (words,) = commands(f"```sh\n{line}\n```\n")
    assert message in problem(words)
    assert commands(f"see `{line}` here") == [words]


def test_findings_in_pages_fit_a_terminal() -> None:
    too_wide = [
        (page.name, line)
        for page in PAGES
        for language, block in code_blocks(page.read_text(encoding="utf-8"))
        if language in {"", "text", "console"}
        for line in block.splitlines()
        if LINE_OF_FINDING.match(line) and len(line) > TERMINAL
    ]
    assert too_wide == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 105


def test_the_files_of_the_tour_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tour = text.partition("## Where to start reading")[2].partition("\n## ")[0]
    files = re.findall(r"^\d\. `([^`]+)`", tour, re.MULTILINE)
    assert len(files) == 9
    assert [file for file in files if not (ROOT / "src" / "busbw" / file).is_file()] == []


def test_decisions_have_the_number_of_their_file() -> None:
    pages = [
        page for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name != "README.md"
    ]
    assert [
        page.name
        for page in pages
        if not re.match(rf"# {int(page.name[:4])}\. \w", page.read_text(encoding="utf-8"))
    ] == []


def test_percentages_have_no_space() -> None:
    code = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
    wrong = {
        str(page.relative_to(ROOT)): re.findall(
            r".*\d %.*", code.sub("", page.read_text(encoding="utf-8"))
        )
        for page in PAGES
    }
    assert {page: lines for page, lines in wrong.items() if lines} == {}
