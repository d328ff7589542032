"""For tests of commands: a command line that is refused."""

import pytest

from busbw.cli.main import cli
from busbw.core.errors import UsageError


def refused(*words: str) -> UsageError:
    """The error of these words after `busbw`, which must have a hint."""
    with pytest.raises(UsageError) as caught:
        cli.main(list(words), prog_name="busbw", standalone_mode=False)
    assert caught.value.hint
    return caught.value
