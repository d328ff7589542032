"""The reference page of patterns: the formats that can be read, and the record busbw.pattern/1
from its own structures.
"""

import inspect
import re

import msgspec
from markdown_table import code, field_table, table

from busbw.core.pattern import (
    ALGORITHMS,
    FUNCTIONS,
    PROTOCOLS,
    SCHEMA,
    Comm,
    Header,
    PatternCall,
    PatternRow,
    Times,
)
from busbw.pattern.collector import ORDER_LIMIT
from busbw.pattern.registry import FORMATS

# A field with its default, and a comment in front of it or behind it.
_FIELD = re.compile(r"^((?:    # .+\n)*)    (\w+): (.+?)(?: = (.+?))?(?:  # (.+))?$", re.MULTILINE)


def patterns() -> str:
    """Formats with what each has and lacks, then the lines of the record."""
    formats = [(code(row.name), row.title, row.made_by, row.has, row.lacks) for row in FORMATS]
    names = (("functions", FUNCTIONS), ("algorithms", ALGORITHMS), ("protocols", PROTOCOLS))
    return (
        "`busbw show FILE...` recognizes the format of a file by its first bytes; `--input-format`"
        " names it instead. Files can be compressed with gzip. Several files, or a directory, are"
        " the ranks of one job.\n\n"
        "## Formats\n\n"
        + table(("name", "format", "made by", "has", "lacks"), formats)
        + f"`record` is {SCHEMA} itself, below.\n\nUp to {ORDER_LIMIT} calls over all ranks are"
        " kept in order. Of more, the number and the times of equal calls are kept.\n\n## What"
        " ranks saw becomes one call\n\nA collective is one call of all its members. The calls"
        " of all ranks are put into one order in which each rank keeps its own; where ranks"
        " disagree, because of several streams, the earlier start is first, and a note counts"
        " it. The duration of a call is the shortest on any rank: the rank that came last did"
        " not wait. The longest less the shortest is its skew.\n\nShares and totals are averages"
        " of the ranks whose files were read. They stand for the whole job if groups of one name"
        " and size make the same calls; a note says which groups were read, and whether they are"
        " alike. SimAI's workload and pattern.csv state the calls of a typical rank.\n\n## The"
        f" record: {SCHEMA}\n\nJSON Lines: a header, then communicators, rows and calls, each an"
        " object with its `type`. Communicators precede their rows, rows their calls. Fields"
        " with their default are left out. Times are microseconds; the name says which clock"
        " took them. `Rank` and `Ranks` are whole numbers from 0 to 2^30, `Figure` and `Positive`"
        " those from 0 and from 1 to 2^62. A line with another number, or with a rank that its"
        " communicator lacks, is counted and left out.\n\n"
        + "".join(_section(one) for one in (Header, Comm, PatternRow, PatternCall, Times))
        + "\n".join(f"* {title}: {', '.join(map(code, values))}" for title, values in names)
    )


def _comment(lines: str) -> str:
    """The text of the lines of a comment."""
    return " ".join(line.strip().removeprefix("# ") for line in lines.splitlines())


def _section(one: type[msgspec.Struct]) -> str:
    fields = _FIELD.findall(inspect.getsource(one))
    rows = [
        (code(name), kind, code(default) or "required", _comment(above) or behind)
        for above, name, kind, default, behind in fields
    ]
    tag = one.__struct_config__.tag
    title = f"{one.__name__} (`{tag}`)" if tag else one.__name__
    return f"### {title}\n\n{inspect.cleandoc(one.__doc__ or '')}\n\n" + field_table(rows)
