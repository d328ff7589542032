"""The navigation of the site, as tables of contents that are added to four pages while they are
read; forges never see them.

A page that is in none of them ends the build.
"""

from contents import EXPLANATION, HOW_TO
from sphinx.application import Sphinx

# Of each page that has tables of contents: their captions, and patterns of the pages below.
CONTENTS = {
    "README": {
        "Tutorial": ["docs/tutorial", "docs/README"],
        **{
            f"How-to: {group}": [f"docs/how-to/{name}" for name in names]
            for group, names in HOW_TO.items()
        },
        "Explanation": [f"docs/explanation/{name}" for name in EXPLANATION],
        "Reference": ["docs/reference/README", "docs/glossary"],
        "Evidence": ["benchmarks/README"],
        "Project": [
            "CHANGELOG",
            "CONTRIBUTING",
            "docs/style",
            "SECURITY",
            "docs/decisions/README",
            "accel/README",
            "native/README",
        ],
    },
    "docs/reference/README": {"": ["docs/reference/*"]},
    "docs/decisions/README": {"": ["docs/decisions/*"]},
    "benchmarks/README": {"": ["benchmarks/*/README"]},
}
# whose contents also stand in the page, which has no list of its own
LISTED = {"docs/decisions/README"}


def add(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the tables of contents to the source of a page."""
    for caption, patterns in CONTENTS.get(page, {}).items():
        options = [
            ":glob:",
            ":maxdepth: 1" if page in LISTED else "",
            f":caption: {caption}" if caption else "",
            "" if page in LISTED else ":hidden:",
        ]
        lines = [option for option in options if option] + [
            "",
            *(f"/{pattern}" for pattern in patterns),
        ]
        source[0] += "\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
