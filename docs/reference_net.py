"""The reference page of the network plugin: its settings, from their table in
native/crates/transport/src/config.rs, and the releases of NCCL, from
native/crates/nccl-abi/releases.csv.

A test in native compares the page with the compiled table of settings, so a row that ROW misses
fails `cargo test`. tests/native/test_releases.py compares the releases with the built library.
"""

import csv
import re
from pathlib import Path

from markdown_table import code, table

CRATES = Path(__file__).resolve().parent.parent / "native" / "crates"
SOURCE = CRATES / "transport" / "src" / "config.rs"
RELEASES = CRATES / "nccl-abi" / "releases.csv"
KINDS = ("tuner", "profiler", "net")
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


def page() -> str:
    """The settings, then the releases."""
    return f"{variables()}## Releases of NCCL\n\n{releases()}"


def releases() -> str:
    """One row per release: the version of each table that it uses of busbw-native, with the newest
    that it looks for where that is another.
    """
    lines = RELEASES.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    intro = (
        "NCCL looks in a plugin's library for the newest version of each table that it knows, then"
        " for older ones. Every release from 2.28 on finds one of each kind in busbw-native. Older"
        " releases use tuner v2 (2.21 to 2.23) and v4 (2.24 to 2.27), profiler v2 (2.24 to 2.26)"
        " and v4 (2.27), and net v8.\n\n"
    )
    outro = (
        "Net v12 adds to v11 the rail and the plane of a device, which the plugin does not know."
        " Not supported are the tables of GIN (`ncclGinPlugin`), with which kernels send over a"
        " network themselves, of collective networks (`ncclCollNetPlugin`), of one-sided calls"
        " (`ncclRmaPlugin`) and of variables (`ncclEnvPlugin`): NCCL uses its own. Its own GIN"
        " needs RDMA devices.\n"
    )
    cells = [[row["nccl"], *(_used(row, kind) for kind in KINDS), row["source"]] for row in rows]
    return intro + table(["NCCL", "Tuner", "Profiler", "Net", "Source"], cells) + outro


def _used(row: dict[str, str], kind: str) -> str:
    """`v6`, or `v11; NCCL has v12`."""
    newest, used = row[kind].split()[0], row[f"{kind}_used"]
    return f"v{used}" if used == newest else f"v{used}; NCCL has v{newest}"
