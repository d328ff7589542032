"""Compares core/xids.csv with NVIDIA's Xid catalog: python tools/compare_xids.py CATALOG

CATALOG is the page docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html saved as HTML, or
its table as CSV. Prints a line for each Xid that differs; exit code 1 if there is one.
"""

import csv
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

from busbw.core.table_file import cells

SOURCE = "NVIDIA Xid catalog"  # of rows in core/xids.csv
# Our columns, and a word of the catalog's titles.
COLUMNS = {
    "number": "code",
    "mnemonic": "mnemonic",
    "meaning": "description",
    "action": "immediate",
    "investigate": "investigatory",
}
COMPARED = ("mnemonic", "action", "investigate")
NOTHING = ("", "N/A")
UNUSED = ("", "unused", "reserved")
Rows = list[list[str]]


class Tables(HTMLParser):
    """The tables of a page, as rows of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Rows] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a table, a row or a cell."""
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        """Add text to the cell."""
        if self._in_cell:
            self.tables[-1][-1][-1] += data


def read(path: Path) -> dict[int, dict[str, str]]:
    """The Xids that the catalog describes, by number; ValueError if the file has no such table."""
    text = path.read_text(encoding="utf-8")
    if "<table" in text:
        page = Tables()
        page.feed(text)
        tables = page.tables
    else:
        tables = [list(csv.reader(text.splitlines()))]
    for table in tables:
        titles = [title.strip().lower() for title in table[0]] if table else []
        places = {
            column: place
            for column, word in COLUMNS.items()
            for place, title in enumerate(titles)
            if word in title
        }
        if len(places) == len(COLUMNS):
            return _described(table[1:], places)
    raise ValueError(f"{path}: no table with the columns {', '.join(COLUMNS.values())}")


def _described(table: Rows, places: dict[str, int]) -> dict[int, dict[str, str]]:
    catalog = {}
    for row in table:
        if len(row) > max(places.values()):
            values = {column: " ".join(row[place].split()) for column, place in places.items()}
            if values["number"].isdecimal() and values["meaning"].lower() not in UNUSED:
                catalog[int(values["number"])] = values
    return catalog


def differences(catalog: dict[int, dict[str, str]], table: list[dict[str, str]]) -> list[str]:
    """A line for each Xid that only one of them has, and for each value that differs."""
    ours = {int(row["number"]): row for row in table if row["source"] == SOURCE}
    lines = [f"{number}: not in the catalog" for number in sorted(ours.keys() - catalog.keys())]
    for number, theirs in sorted(catalog.items()):
        if number not in ours:
            lines.append(f"{number}: not in core/xids.csv: {', '.join(theirs.values())}")
            continue
        row = ours[number]
        lines += [
            f"{number}: {column} is {row[column] or 'empty'},"
            f" in the catalog {theirs[column] or 'empty'}"
            for column in COMPARED
            if not _agree(row[column], theirs[column])
        ]
    return lines


def _agree(ours: str, theirs: str) -> bool:
    """Whether our first word is one of the catalog's, which adds alternatives and remarks."""
    words = re.findall(r"[\w/]+", theirs) or [""]
    if not ours:
        return words[0] in NOTHING
    return ours.split()[0] in words


def main() -> int:
    """The exit code."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    catalog = read(Path(sys.argv[1]))
    lines = differences(catalog, cells("core/xids.csv"))
    print("\n".join(lines) or f"all {len(catalog)} Xids of the catalog are the same")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
