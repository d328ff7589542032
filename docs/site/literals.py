"""Code: short words in running text are kept whole, because browsers break an option after its
hyphens; `$` is the only prompt.
"""

import re
from typing import Any

from docutils import nodes
from pygments.lexers.shell import BashSessionLexer
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LONGEST = 24  # characters that fit into a phone's line, in a list


class Whole(SphinxTransform):
    """Marks code without a long word."""

    default_priority = 900

    def apply(self, **kwargs: Any) -> None:
        """Mark the code of one page."""
        for code in self.document.findall(nodes.literal):
            if all(len(word) <= LONGEST for word in code.astext().split()):
                code["classes"].append("whole")


class Console(BashSessionLexer):
    """Commands and output. Lines of output that begin with `#` are no commands of root."""

    _ps1rgx = re.compile(r"^(\$ )(.*\n?)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Whole)
    app.add_lexer("console", Console)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
