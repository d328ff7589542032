"""The reference page of findings, from the registry of rules."""

from markdown_table import code, table

from busbw.model.findings import RULES

# `busbw show` adds these when it reads a log; they have no rule.
_OF_LOGS = (
    ("`log.rows`", "warn", "`busbw show` skipped lines of a log that it could not read"),
    ("`log.tables`", "warn", "a log holds several tables; the first was read"),
)


def findings() -> str:
    """One row for each finding, in the order in which a run prints them."""
    rows = [(code(rule.id), ", ".join(verdict.value for verdict in rule.verdicts), rule.docs) for rule in RULES]
    return (
        "The findings of a run, in the order of output. `unknown` is never turned into `pass`: missing evidence does not prove "
        "health. Only wrong data changes the exit code of `busbw run`.\n\n" + table(("id", "verdicts", "meaning"), [*rows, *_OF_LOGS])
    )
