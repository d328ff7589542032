"""How the code reads, in numbers: python tools/house.py [FOLDER ...]     src/busbw by default

Files, their lines and statements; lines over 100 characters; comprehensions, nested ones, chained
conditional expressions and `:=` per 1,000 lines; and how often a binding has a name that says
nothing.
"""

import ast
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
VAGUE = ("one", "found", "seen", "most", "said", "wanted", "each", "its", "look")
WIDEST = 100  # columns


@dataclass
class House:
    """What was counted. `lines` are those of each file."""

    lines: dict[Path, int] = field(default_factory=dict)
    wide: int = 0
    statements: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)

    def add(self, path: Path) -> None:
        """Count one file."""
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        self.lines[path] = len(lines)
        self.wide += sum(len(line) > WIDEST for line in lines)
        for node in ast.walk(ast.parse(text)):
            self._count(node)

    def _count(self, node: ast.AST) -> None:
        self.statements += isinstance(node, ast.stmt)
        if isinstance(node, COMPREHENSIONS):
            self.counts["comprehensions"] += 1
            self.counts["nested"] += any(
                isinstance(inner, COMPREHENSIONS) for inner in _inner(node)
            )
        elif isinstance(node, ast.IfExp):
            self.counts["chained conditionals"] += isinstance(node.orelse, ast.IfExp) or isinstance(
                node.body, ast.IfExp
            )
        elif isinstance(node, ast.NamedExpr):
            self.counts[":="] += 1
        elif isinstance(node, ast.FunctionDef) and node.name in VAGUE:
            self.names[f"def {node.name}"] += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            self.names[node.id] += 1


def _inner(node: ast.AST) -> list[ast.AST]:
    """All nodes below a node."""
    return [inner for inner in ast.walk(node) if inner is not node]


def report(folder: str, house: House) -> str:
    """The numbers of a folder."""
    sizes = house.lines.values()
    total, median, large = sum(sizes), statistics.median(sizes), sum(size > 400 for size in sizes)
    per_thousand = [f"{name} {1000 * n / total:.1f}" for name, n in sorted(house.counts.items())]
    names = [f"{name} {count}" for name, count in house.names.most_common()]
    return (
        f"{folder}: {len(sizes)} files, {total} lines, {house.statements} statements,"
        f" median {median:.0f} lines\n"
        f"  {house.wide} lines over {WIDEST} characters; {large} files over 400 lines\n"
        f"  per 1,000 lines: {', '.join(per_thousand)}\n"
        f"  bindings: {', '.join(names)}"
    )


def main(folders: list[str]) -> None:
    """Print the numbers of each folder."""
    for folder in folders or ["src/busbw"]:
        house = House()
        for path in sorted(Path(folder).rglob("*.py")):
            house.add(path)
        print(report(folder, house))


if __name__ == "__main__":
    main(sys.argv[1:])
