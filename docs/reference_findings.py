"""The reference page of findings, from the registry of their rules."""

from markdown_table import code, table

from busbw.model.findings import RULES

# `busbw show` adds these while it reads a log; no rule over a run finds them.
_OF_LOGS = (
    ("`log.rows`", "warn", "`busbw show` left out lines of a log that it could not read"),
    ("`log.tables`", "warn", "a log holds several tables; the first was read"),
)


def findings() -> str:
    """One row for each finding, in the order in which a run prints them."""
    rows = [(code(rule.id), ", ".join(verdict.value for verdict in rule.verdicts), rule.docs) for rule in RULES]
    return (
        "What a run concludes, in the order in which it is printed. `unknown` is never turned into `pass`: absence of evidence is not "
        "health. Only wrong data changes the exit code of `busbw run`.\n\n" + table(("id", "verdicts", "what it says"), [*rows, *_OF_LOGS])
    )
