"""The reference page of the network plugin's settings, from their table in
native/crates/transport/src/config.rs.

A test there compares the page with the compiled table, so a row that ROW misses fails `cargo test`.
"""

import re
from pathlib import Path

from markdown_table import code, table

SOURCE = (
    Path(__file__).resolve().parent.parent / "native" / "crates" / "transport" / "src" / "config.rs"
)
ROW = re.compile(r'Variable \{\s*name: "([^"]+)",\s*default: "([^"]+)",\s*help: "([^"]+)",?\s*\}')


def variables() -> str:
    """One row per variable."""
    rows = ROW.findall(SOURCE.read_text(encoding="utf-8"))
    intro = (
        "The plugin reads these variables when NCCL loads it. All are optional ([how"
        " to](../how-to/nccl-over-ethernet.md)); an empty value is the default. For an invalid"
        " value or an unknown name, the plugin prints one line, and NCCL uses its next network.\n\n"
    )
    return intro + table(
        ["Variable", "Default", "Meaning"],
        [[code(f"BUSBW_NET_{name}"), default, words] for name, default, words in rows],
    )
