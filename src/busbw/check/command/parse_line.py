"""Parses a launcher's command line: its options, the ranks' variables, and the program."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from busbw.check.command.line import (
    ASSIGNMENT,
    EXPANDED,
    EXPORTS,
    CommandLine,
    LauncherOption,
    needs_shell,
)
from busbw.check.command.options import (
    HYDRA,
    KNOWN_OPTIONS,
    LAUNCHERS,
    OPTIONS_WITH_ONE_VALUE,
    OPTIONS_WITH_TWO_VALUES,
)


def parse(argv: Sequence[str]) -> CommandLine:
    """The line, with what stands before the launcher: assignments, env, timeout and the like."""
    at, launcher = _find_launcher(argv)
    if not launcher:
        start = 0
        while start < len(argv) and (argv[start] == "env" or ASSIGNMENT.fullmatch(argv[start])):
            start += 1
        before = _parse_assignments(argv[:start])
        return CommandLine(tuple(argv), before=before, program=tuple(argv[start:]))
    options, program = _parse_options(argv[at + 1 :], launcher)
    if launcher == "mpirun" and any(option.name in HYDRA for option in options):
        launcher = "hydra"
        options, program = _parse_options(argv[at + 1 :], launcher)
    return CommandLine(
        tuple(argv),
        launcher,
        tuple(options),
        _parse_assignments(argv[:at]),
        tuple(_passed_variables(launcher, options)),
        tuple(program),
    )


def _passed_variables(
    launcher: str, options: Sequence[LauncherOption]
) -> Iterator[tuple[str, str | None]]:
    """The variables that options give to the ranks; None for the value of the environment."""
    for option in options:
        if launcher == "mpirun" and option.name == "x" and option.values:
            yield _parse_export(option.values[0])
        if launcher == "hydra" and option.name in ("genv", "env") and len(option.values) == 2:
            yield option.values[0], option.values[1]
        if launcher == "srun" and option.name == "export" and option.values:
            words = option.values[0].split(",")
            yield from (_parse_export(word) for word in words if word not in EXPORTS)


def _parse_assignments(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    matches = map(ASSIGNMENT.fullmatch, words)
    return tuple((match.group(1), match.group(2)) for match in matches if match)


def _parse_export(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _find_launcher(argv: Sequence[str]) -> tuple[int, str]:
    """The index of the launcher's word, and the launcher; '' if the line has none."""
    for at, word in enumerate(argv):
        name = Path(word).name
        if name in LAUNCHERS:
            return at, LAUNCHERS[name]
    return 0, ""


def _parse_options(words: Sequence[str], launcher: str) -> tuple[list[LauncherOption], list[str]]:
    """The launcher's options, and the program that follows them.

    A word for the shell in front of options is the program, or it holds options too. It holds
    options if the launcher's own and a program follow, as in `mpirun $ARGS -n 2 ./program`.
    """
    parts = [_parse_leading_options(words, launcher)]
    while _may_hold_options(parts[-1][1]):
        parts.append(_parse_leading_options(parts[-1][1][1:], launcher))
    options, program = parts.pop()
    known_names = KNOWN_OPTIONS[launcher] | {EXPANDED}
    while parts:
        before, rest = parts.pop()
        known = all(option.name in known_names for option in options)
        if known and program and program[0] and not program[0][0].isdigit():
            options = [*before, LauncherOption(rest[0], EXPANDED), *options]
        else:
            options, program = before, rest
    return options, program


def _may_hold_options(program: Sequence[str]) -> bool:
    return len(program) > 1 and needs_shell(program[0]) and program[1].startswith("-")


def _parse_leading_options(
    words: Sequence[str], launcher: str
) -> tuple[list[LauncherOption], list[str]]:
    """The options up to the first word that is none, and the words from there on."""
    options, at = list[LauncherOption](), 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option, count = _parse_option(words[at : at + 3], launcher)
        if launcher == "torchrun" and option.name in ("m", "module", "no-python"):
            break
        options.append(option)
        at += count
    remaining = list(words[at:])
    return options, remaining[1:] if remaining[:1] == ["--"] else remaining


def _parse_option(words: Sequence[str], launcher: str) -> tuple[LauncherOption, int]:
    """The option at the start of the words, and the number of words that it takes."""
    word, attached = words[0], ""
    if word.startswith("--"):
        word, _, attached = word.partition("=")
    name = word.lstrip("-")
    if launcher not in ("mpirun", "hydra"):
        name = name.replace("_", "-")
    if attached:
        return LauncherOption(word, name, (attached,)), 1
    letter = word[1:2]
    single = launcher == "srun" and len(word) > 2 and letter != "-"
    if single and letter in OPTIONS_WITH_ONE_VALUE["srun"]:
        return LauncherOption(word, letter, (word[2:],)), 1
    count = int(name in OPTIONS_WITH_ONE_VALUE[launcher])
    if name in OPTIONS_WITH_TWO_VALUES[launcher]:
        count = 2
    return LauncherOption(word, name, tuple(words[1 : 1 + count])), 1 + count
