"""The reference page of findings, from the rules of runs and the findings of logs."""

from markdown_table import code, table

from busbw.backends.findings import BACKENDS_FINDINGS
from busbw.core.finding import LOG_FINDINGS
from busbw.model.findings import rules
from busbw.moe.findings import MOE_FINDINGS
from busbw.overlap.findings import OVERLAP_FINDINGS


def findings() -> str:
    """One row for each finding, in the order in which a run prints them."""
    rows = [
        (code(rule.id), ", ".join(verdict.value for verdict in rule.verdicts), rule.docs)
        for rule in rules()
    ]
    for of_kind in (MOE_FINDINGS, BACKENDS_FINDINGS, OVERLAP_FINDINGS, LOG_FINDINGS):
        rows += [(code(name), verdict.value, docs) for name, (verdict, docs) in of_kind.items()]
    return (
        "Conclusions about a run, in the order in which they are printed. Missing evidence is"
        " `unknown`, never `pass`. Only wrong data changes the exit code of `busbw run`, `moe`,"
        " `backends` and `overlap`.\n\n" + table(("id", "verdicts", "meaning"), rows)
    )
