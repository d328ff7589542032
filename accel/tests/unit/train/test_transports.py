"""Transports by name, and their shell commands."""

import pytest

from busbw.core.errors import UsageError
from busbw_accel.train import transports


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("as-is,udp", "'udp' in 'as-is,udp' is not a transport"),
        ("tree,tree", "'tree,tree' contains tree twice"),
        (" ,", "no transport given"),
    ],
)
def test_invalid_transport_lists_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        transports.parse(text)
    assert caught.value.message == message


def test_a_transport_has_its_shell_command() -> None:
    as_is, tree, busbw = transports.parse("as-is, tree,busbw")
    assert (as_is.shell, tree.shell, busbw.shell) == (
        "",
        "export NCCL_ALGO=allreduce:tree",
        'eval "$(busbw run --net busbw --print-env)"',
    )
