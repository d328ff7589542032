"""The navigation of the site, as tables of contents that are added to four pages while they are read; forges never see them."""

from sphinx.application import Sphinx


def how_to(*names: str) -> list[str]:
    """Pages of docs/how-to; `*` stands for all that no list has named before."""
    return [f"docs/how-to/{name}" for name in names]


# Of each page that has tables of contents: their captions, and patterns of the pages below.
CONTENTS = {
    "README": {
        "Tutorial": ["docs/tutorial"],
        "How-to: measure": how_to("replace-nccl-tests", "pytorch-benchmark", "use-from-python", "compare-runs", "share-a-report"),
        "How-to: several hosts": how_to("several-hosts", "slurm", "kubernetes", "fix-a-launch", "when-it-stops"),
        "How-to: clusters": how_to("check-a-cluster", "test-links", "watch-a-network", "how-fast-should-my-cluster-be"),
        "How-to: training": how_to("what-does-my-training-send", "train-over-slow-networks", "nccl-over-ethernet", "from-horovod", "*"),
        "Explanation": ["docs/explanation/*"],
        "Reference": ["docs/reference/README", "docs/glossary"],
        "Evidence": ["benchmarks/README"],
        "Project": ["CHANGELOG", "CONTRIBUTING", "SECURITY", "docs/decisions/README", "native/README"],
    },
    "docs/reference/README": {"": ["docs/reference/*"]},
    "docs/decisions/README": {"": ["docs/decisions/*"]},
    "benchmarks/README": {"": ["benchmarks/*/README"]},
}
LISTED = {"docs/decisions/README"}  # whose contents also stand in the page, which has no list of its own


def add(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the tables of contents to the source of a page."""
    for caption, patterns in CONTENTS.get(page, {}).items():
        options = [
            ":glob:",
            ":maxdepth: 1" if page in LISTED else "",
            f":caption: {caption}" if caption else "",
            "" if page in LISTED else ":hidden:",
        ]
        lines = [option for option in options if option] + ["", *(f"/{pattern}" for pattern in patterns)]
        source[0] += "\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
