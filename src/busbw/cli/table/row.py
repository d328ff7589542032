"""A row of the table of commands: purpose, one line of help, and examples."""

from dataclasses import dataclass, field

MEASURE = "Measure"
MODEL = "Explain and predict"
CHECK = "Check and watch"
TRAIN = "Applications, training and tuning"
RESULTS = "Results"
SET_UP = "Set up"
PURPOSES = (MEASURE, MODEL, CHECK, TRAIN, RESULTS, SET_UP)  # in the order of --help

Examples = tuple[tuple[str, str], ...]  # each: what it does, and the command to type


@dataclass(frozen=True, slots=True)
class Row:
    """One command. `parts` has the examples of its subcommands, by their name; `tables` is whether
    it prints tables, and so has --wide. Its module is that of its name in `package`.
    """

    name: str
    purpose: str
    help: str
    examples: Examples
    parts: dict[str, Examples] = field(default_factory=dict)
    tables: bool = True
    package: str = "busbw.cli"

    def examples_of(self, part: str) -> Examples:
        """The examples of the command itself ('') or of a subcommand."""
        return self.parts[part] if part else self.examples
