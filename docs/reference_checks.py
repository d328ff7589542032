"""The page of checks: a table, then a section for each."""

from markdown_table import table

from busbw.check.registry import CHECKS, EXPECTATIONS, OF_MACHINE, ROWS
from busbw.core.finding import CheckRow


def checks() -> str:
    """All checks of `busbw check` and `busbw check command`, from their rows."""
    lines = [[f"[{row.id}](#{anchor(row)})", row.name, row.layer.value, row.title] for row in ROWS]
    head = (
        f"`busbw check` has {len(CHECKS)} checks of a machine, and {len(EXPECTATIONS)} that compare"
        f" it with a file (`--expect`). `busbw check command` has {len(ROWS) - len(OF_MACHINE)}"
        " rules for command lines (line-...). `busbw check explain BW070` prints one of these"
        " sections.\n\n"
    )
    return (
        head
        + table(("id", "name", "layer", "looks at"), lines)
        + "\n"
        + "\n".join(map(_section, ROWS))
    )


def anchor(row: CheckRow) -> str:
    """GitHub's anchor of a check's section."""
    return f"{row.id}-{row.name}".lower()


def _section(row: CheckRow) -> str:
    reads = ", ".join(f"`{one}`" for one in row.reads)
    fields = [
        ("Right", row.right),
        ("Why", row.why),
        ("Fix", f"`{row.fix}`"),
        ("Stays", row.stays),
        ("Reads", reads),
        ("Sources", "; ".join(row.sources)),
    ]
    return f"## {row.id} {row.name}\n\n{row.title}.\n\n" + "".join(
        f"* **{name}**: {text}\n" for name, text in fields if text
    )
