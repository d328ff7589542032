"""Modules, names and files that docstrings, comments and decisions mention exist."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (ROOT / "src" / "busbw", ROOT / "accel" / "src" / "busbw_accel")
# Docstrings, and comments that stand alone or behind two spaces.
TEXT = re.compile(r'"""((?:[^"\\]|\\.|"(?!""))*)"""|^ *# ?(.*)|  # (.*)', re.MULTILINE)
DOTTED = re.compile(r"(?<![\w/.@$:<>%*-])([a-z]\w*)((?:\.[A-Za-z_]\w*)+)(?![\w/(*-])")
FILE = re.compile(r"(?<![\w/.*-])[\w./-]*\w\.py\b(?!\.)")
FILE_END = re.compile("cc|conf|csv|cu|h|html|json|jsonl|log|md|py|pyz|sh|toml|txt|yaml")
OTHERS = {*sys.stdlib_module_names, "torch", "horovod"}  # first parts that may be other packages
# Former names in texts on the past, placeholders, and files of other projects.
ALLOWED = {
    "busbw.accel",
    "busbw.horovod",
    "busbw_built.py",  # made with the single file
    "check/LAYER/NAME.py",
    "src/jsonizer/jsonizer.py",
    "train.py",  # a user's
}


@cache
def sources() -> dict[Path, str]:
    """Every file of the packages with its text."""
    files = (file for package in PACKAGES for file in package.rglob("*.py"))
    return {file: file.read_text(encoding="utf-8") for file in files}


@cache
def modules() -> Mapping[str, list[Path]]:
    """The files of modules, and the folders of packages, by their last name."""
    named = defaultdict(list)
    for file in sources():
        named[file.parent.name if file.stem == "__init__" else file.stem].append(file)
    return named


def texts(source: str) -> Iterator[str]:
    """The docstrings and comments of a source."""
    for match in TEXT.finditer(source):
        yield match[1] or match[2] or match[3] or ""


def unknown_names(text: str, place: Path, source: str = "") -> list[str]:
    """The dotted names in a text that begin with a package or module and lead nowhere.

    Modules are those in the folder of `place`, and those that its source imports. A variable may be
    called like one: its fields are not looked up.
    """
    unknown = []
    for match in DOTTED.finditer(text):
        first, parts = match[1], match[2][1:].split(".")
        is_file = FILE_END.fullmatch(parts[0]) is not None
        is_ours = first in modules() and first not in OTHERS and not is_file
        if is_ours and match[0] not in ALLOWED and _is_module(first, place, source):
            unknown += [match[0]] * (not _leads_somewhere(first, parts))
    return unknown


def _is_module(name: str, place: Path, source: str) -> bool:
    """Whether a name in a file is that of a package or module, and of no variable."""
    folders = (PACKAGES[0].parent, PACKAGES[1].parent, *PACKAGES, place.parent)
    is_near = any(
        (folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders
    )
    imported = rf"^ *(?:from busbw.* )?import .*\b{name}\b"
    variable = rf"^[^#\n\"]*(?<![\w.]){name}(?:: | = |, )|(?:for|as) {name}\b"
    if re.search(imported, source, re.MULTILINE):
        return True
    return is_near and re.search(variable, source, re.MULTILINE) is None


def _leads_somewhere(first: str, parts: list[str]) -> bool:
    return any(_has(file, parts) for file in modules()[first])


def _has(file: Path, parts: list[str]) -> bool:
    """Whether a module has the first part, as a module in its folder or as a name."""
    if file.stem == "__init__":
        for below in (file.parent / f"{parts[0]}.py", file.parent / parts[0] / "__init__.py"):
            if below in sources():
                return len(parts) == 1 or _has(below, parts[1:])
    return all(_is_defined(part, sources()[file]) for part in parts) or _is_entry_point(parts)


def _is_defined(name: str, source: str) -> bool:
    bound = rf"^ *(?:(?:async )?def |class |self\.)?{name}\b(?:,? [\w, ]*)?(?:[:=(\[]| =|,$)"
    imported = rf"^(?:from .* )?import .*\b{name}\b"
    return re.search(rf'{bound}|{imported}|^ *"{name}"[,:]', source, re.MULTILINE) is not None


def _is_entry_point(parts: list[str]) -> bool:
    groups = (ROOT / "accel" / "pyproject.toml").read_text(encoding="utf-8")
    return f'[project.entry-points."busbw.{parts[0]}"]' in groups


def missing_files(text: str, place: Path) -> list[str]:
    """The Python files that a text names and that are neither in the tree nor beside `place`."""
    names = (name for name in FILE.findall(text) if name not in ALLOWED)
    return [name for name in names if not _is_file(name, place)]


def _is_file(name: str, place: Path) -> bool:
    folders = (ROOT, *PACKAGES, *place.parents)
    return any((folder / name).is_file() for folder in folders) or (
        "/" not in name and Path(name).stem in modules()
    )


def wrong_references(file: Path, text: str, source: str = "") -> list[str]:
    """What a text of a file mentions and does not exist."""
    wrong = unknown_names(text, file, source) + missing_files(text, file)
    return [f"{file.relative_to(ROOT)}: {name}" for name in wrong]


def test_docstrings_and_comments_mention_what_exists() -> None:
    wrong = [
        reference
        for file, source in sources().items()
        for text in texts(source)
        for reference in wrong_references(file, text, source)
    ]
    assert not wrong, "\n".join(wrong)


def test_contributing_and_decisions_mention_what_exists() -> None:
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "decisions").glob("*.md")]
    wrong = [ref for page in pages for ref in wrong_references(page, page.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("as core.sizes.parse_size reads it", []),
        ("as core.sizes.parse_colour reads it", ["core.sizes.parse_colour"]),
        ("bits of core.gpu_events.CLOCK_REASONS", ["core.gpu_events.CLOCK_REASONS"]),
        ("see measure.runner.Runner.iters", []),
        ("see gradients.find, and the file run.json", []),
        ("torch.distributed, busbw.toml and the group busbw.files", []),
        ("written by core/sizes.py and tools/dist.py", []),
        ("written by core/volumes.py", ["core/volumes.py"]),
    ],
)
def test_names_that_lead_nowhere_are_found(text: str, wrong: list[str]) -> None:
    page = ROOT / "CONTRIBUTING.md"
    assert unknown_names(text, page) + missing_files(text, page) == wrong
