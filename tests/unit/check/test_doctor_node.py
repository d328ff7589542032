"""The listener of the launch doctor answers its peers, whoever else connects."""

import contextlib
import errno
import socket
import threading
import time

import pytest

from busbw.check.doctor import node

TOKEN = b"of this test"


class Short(socket.socket):
    """A listening socket whose process has no descriptor left at first, as with 1,000 strangers."""

    refusals_left = 2

    def accept(self):
        if self.refusals_left:
            self.refusals_left -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


@pytest.mark.parametrize("strangers", [0, 3])
def test_strangers_do_not_keep_a_peer_from_the_listener(monkeypatch, strangers):
    monkeypatch.setattr(node, "_RETRY_S", 0.02)
    monkeypatch.setattr(node, "_MAX_CONNECTIONS", 2)
    with Short() as listening, contextlib.ExitStack() as crowd:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = list(listening.getsockname())
        for _ in range(strangers):
            crowd.enter_context(socket.create_connection(tuple(address), 5))
        threading.Thread(
            target=node._answer, args=(listening, TOKEN, time.monotonic() + 10), daemon=True
        ).start()
        failed: dict[str, str] = {}
        node._call("peer", address, TOKEN, time.monotonic() + 10, failed)
        assert failed == {}
