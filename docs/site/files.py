"""Links to files and folders that are no pages.

A file is copied to the same place on the site, a program or a folder becomes a page.
"""

import html
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# shown as pages, because servers offer them for download
SHOWN = {".py": "python", ".sh": "sh", ".conf": "text", ".c": "c"}
LINKED: set[Path] = set()  # files and folders, relative to the repository


class Files(SphinxTransform):
    """Points each link to a file or folder at what the site has in its place."""

    default_priority = 5  # before Sphinx collects downloads and resolves references

    def apply(self, **kwargs: Any) -> None:
        """Change the links of one page."""
        root = Path(self.env.srcdir)
        folder = (root / self.env.docname).parent
        for link in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            target, text = (folder / link["reftarget"]).resolve(), link["reftarget"]
            if (target / "README.md").is_file():
                link["refdomain"], link["reftarget"] = (
                    "doc",
                    (target / "README").relative_to(root).as_posix(),
                )
                link["reftargetid"] = None
            elif target.exists():
                LINKED.add(target.relative_to(root))
                link.replace_self(
                    nodes.reference(
                        "", "", *link.children, refuri=text + ending(target), internal=True
                    )
                )


def ending(target: Path) -> str:
    """What the address of a file's or folder's page has after its path."""
    if target.is_dir():
        return "/index.html"
    return ".html" if target.suffix in SHOWN else ""


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each linked folder and program; copies of the other files."""
    for path in sorted(LINKED):
        source = Path(app.srcdir) / path
        if source.is_dir():
            found = sorted(
                file.relative_to(source).as_posix() for file in source.rglob("*") if file.is_file()
            )
            body = "".join(
                f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>' for name in found
            )
            yield f"{path.as_posix()}/index", page(path, f"<ul>{body}</ul>"), "page.html"
        elif source.suffix in SHOWN:
            text = app.builder.highlighter.highlight_block(
                source.read_text(encoding="utf-8"), SHOWN[source.suffix]
            )
            yield path.as_posix(), page(path, text), "page.html"


def page(path: Path, body: str) -> dict[str, Any]:
    """What a page's template needs."""
    title = html.escape(path.as_posix())
    return {"title": title, "body": f"<section><h1>{title}</h1>{body}</section>"}


def copy(app: Sphinx, error: Exception | None) -> None:
    """The linked files, with those of linked folders, to the site; and the start page under the
    name that servers look for.
    """
    if error:
        return
    for path in LINKED:
        source, target = Path(app.srcdir) / path, Path(app.outdir) / path
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.suffix not in SHOWN:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Files)
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
