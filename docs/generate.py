"""Makes docs/reference from the tables of the code: `python docs/generate.py`; with --check it only says what is stale, and exits 1."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "src")]  # a checkout's own tables, installed or not

import reference_accel  # noqa: E402 - found by the path above
import reference_commands  # noqa: E402
import reference_findings  # noqa: E402
import reference_machine  # noqa: E402
import reference_net  # noqa: E402
import reference_result  # noqa: E402
import reference_tables  # noqa: E402

NOTE = "<!-- Made by docs/generate.py from the tables of the code. Change those, then run it again. -->\n"

# File name, title, and what makes the text under it.
PAGES = (
    ("collectives.md", "Collectives", reference_tables.collectives),
    ("options.md", "Options of a sweep", reference_commands.options),
    ("commands.md", "Commands", reference_commands.commands),
    ("types-and-operators.md", "Element types and reduction operators", reference_tables.types_and_operators),
    ("engines.md", "Engines", reference_tables.engines),
    ("views.md", "Views", reference_tables.views),
    ("exit-codes.md", "Exit codes", reference_tables.exit_codes),
    ("environment.md", "Environment variables", reference_tables.environment),
    ("net-plugin.md", "Settings of the net plugin", reference_net.variables),
    ("accel.md", "Gradients: settings and switches", reference_accel.settings),
    ("training.md", "Training: models and methods", reference_accel.methods),
    ("horovod.md", "Variables of the Horovod face", reference_accel.horovod_variables),
    ("launchers.md", "Launchers", reference_tables.launchers),
    ("launch-failures.md", "Failures of a launch", reference_tables.launch_failures),
    ("ideal.md", "Ideal bus bandwidth", reference_tables.ideal),
    ("counters.md", "Host counters", reference_machine.counters),
    ("findings.md", "Findings", reference_findings.findings),
    ("result.md", "The result: busbw.result/1", reference_result.fields),
)
SCHEMA_FILE = "busbw.result-1.schema.json"


def pages() -> dict[str, str]:
    """The text of every file of docs/reference, by its name."""
    texts = {name: f"{NOTE}\n# {title}\n\n{make().rstrip()}\n" for name, title, make in PAGES}
    links = "".join(f"* [{title}]({name})\n" for name, title, _ in PAGES)
    texts["README.md"] = f"{NOTE}\n# Reference\n\n{links}* [JSON schema of busbw.result/1]({SCHEMA_FILE})\n"
    texts[SCHEMA_FILE] = reference_result.schema()
    return texts


def stale(folder: Path) -> list[str]:
    """Names of the files in `folder` that are missing, differ from what the tables give, or belong to no page."""
    texts = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} if folder.is_dir() else {}
    return sorted(name for name in texts.keys() | there.keys() if texts.get(name) != there.get(name))


def write(folder: Path) -> None:
    """Write every page, and remove what is none."""
    folder.mkdir(exist_ok=True)
    for name in stale(folder):
        (folder / name).unlink(missing_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def main(words: list[str]) -> int:
    """The exit code: 1 when --check finds stale pages, 2 for words that cannot be meant."""
    if words not in ([], ["--check"]):
        print(f"error: docs/generate.py: {' '.join(words)}: unknown\n\nhint: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    folder = DOCS / "reference"
    if not words:
        write(folder)
        return 0
    old = stale(folder)
    if old:
        print(f"error: docs/reference is stale: {', '.join(old)}\n\nhint: python docs/generate.py", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
