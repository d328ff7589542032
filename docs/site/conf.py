"""Sphinx's settings for `make site`.

The source is the repository itself, so a link between files is a link between pages.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from busbw.core.version import __version__  # noqa: E402 - found by the path above

project = "busbw"
release = __version__
html_title = f"busbw {release}"
root_doc = "README"
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**.md", "benchmarks/**.md", "native/README.md", "accel/README.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "site",
    "src",
    "tests",
    "native/target",
    "native/fuzz",
    "**/__pycache__",
]
extensions = ["myst_parser", "sphinx_copybutton", "navigation", "files", "literals", "narrow"]

# CommonMark with tables, as forges show it: none of MyST's own syntax in running text.
myst_heading_anchors = 6
myst_disable_syntax = [
    "myst_block_break",
    "myst_line_comment",
    "myst_role",
    "myst_target",
    "footnote_ref",
    "footnote_block",
]

highlight_language = "text"
smartquotes = False
# the theme's own underlines names of modules, as if they were links
pygments_dark_style = "github-dark"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["../llms.txt"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
html_show_search_summary = False  # would fetch pages, which browsers refuse for files
html_favicon = "static/icon.svg"
html_domain_indices = False
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = False
copybutton_line_continuation_character = "\\"
