"""The TCP test over this machine's loopback, and who may take part in it."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from busbw.link import listening, tcp
from busbw.link.listening import Listener, Refused, connect, token

HERE = "127.0.0.1"


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[object]:
    """Do `work` in a thread meanwhile; its result is in the list at the end."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


@pytest.mark.parametrize("streams", [1, 4])
def test_data_is_counted_between_the_marks(streams):
    key = token()
    listener = Listener(HERE, key)
    with beside(lambda: tcp.send(("lo", HERE), HERE, listener.port, key, streams, 5, 5)) as sending:
        received = tcp.receive(listener, streams, 0.2, 5)
    assert received.bytes > 10e6
    assert 0.2 <= received.seconds < 5, "within the limit"
    assert received.load.cores > 0
    assert sending.result().cores > 0
    assert 0 <= sending.result().network_share <= 1
    assert listener.refused == 0


def test_round_trips_are_timed():
    key = token()
    listener = Listener(HERE, key)
    with beside(lambda: tcp.answer(listener, 5)):
        median_s, p99_s, count = tcp.ping(("lo", HERE), HERE, listener.port, key, 5)
    assert 1e-6 < median_s <= p99_s < 0.1
    assert count > 100


def test_a_sender_that_ends_early_is_an_error():
    key = token()
    listener = Listener(HERE, key)
    with (
        beside(lambda: connect(("lo", HERE), HERE, listener.port, key, 5).close()),
        pytest.raises(ConnectionError, match="1 of 1 streams ended"),
    ):
        tcp.receive(listener, 1, 0.1, 5)


def test_a_receiver_gives_up_when_nobody_comes():
    with pytest.raises(TimeoutError, match=r"0 of 2 connections arrived within 0\.3 s"):
        tcp.receive(Listener(HERE, token()), 2, 1, 0.3)


def test_another_token_is_refused_on_both_sides():
    listener = Listener(HERE, token())
    with beside(lambda: listener.accept(1, 1.0)) as accepting, pytest.raises(Refused):
        connect(("lo", HERE), HERE, listener.port, token(), 5)
    assert isinstance(accepting.exception(), TimeoutError)
    assert listener.refused == 1


def test_a_silent_stranger_does_not_delay_the_peer(monkeypatch):
    # for the stranger: whoever waited for it would be too late
    monkeypatch.setattr(listening, "LIMIT_S", 600.0)
    key = token()
    listener = Listener(HERE, key)
    with (
        socket.create_connection((HERE, listener.port)),
        beside(lambda: listener.accept(1, 60)) as accepting,
    ):
        connect(("lo", HERE), HERE, listener.port, key, 60).close()
        accepting.result()[0].close()


def test_a_stranger_that_sends_slowly_has_one_limit(monkeypatch):
    monkeypatch.setattr(listening, "LIMIT_S", 0.5)
    listener = Listener(HERE, token())
    with (
        beside(lambda: listener.accept(1, 6)) as accepting,
        socket.create_connection((HERE, listener.port)) as slow,
    ):
        slow.settimeout(60)
        slow.recv(16)
        with contextlib.suppress(OSError):
            while not accepting.done():
                slow.sendall(b"x")
                time.sleep(0.2)
        assert not accepting.done(), (
            "it is cut off while others may still come: each byte begins no new limit"
        )


def test_refused_strangers_are_counted_in_the_error():
    listener = Listener(HERE, token())
    with beside(lambda: listener.accept(1, 0.5)) as accepting, contextlib.suppress(Refused):
        connect(("lo", HERE), HERE, listener.port, token(), 5)
    assert (
        str(accepting.exception())
        == "0 of 1 connections arrived within 0.5 s; 1 other did not have the token"
    )


def test_a_peer_that_sends_nothing_is_an_error():
    key = token()
    listener = Listener(HERE, key)
    with beside(lambda: tcp.receive(listener, 1, 0.2, 5)) as receiving:
        with connect(("lo", HERE), HERE, listener.port, key, 5) as silent:
            silent.settimeout(5)
            assert silent.recv(1) == b"", "closed by the receiver"
        assert (
            str(receiving.exception())
            == "connected, but no data arrived for 0.2 s: does the path drop large packets?"
        )


def test_a_crowd_of_strangers_does_not_get_in():
    key, others = token(), threading.active_count()
    listener = Listener(HERE, key)
    with contextlib.ExitStack() as crowd, beside(lambda: listener.accept(1, 2)) as accepting:
        for _ in range(200):
            with contextlib.suppress(OSError):
                crowd.enter_context(socket.create_connection((HERE, listener.port), 0.5))
        with pytest.raises(TimeoutError):
            accepting.result()
    assert threading.active_count() - others < 100


@pytest.mark.parametrize("greeting", [b"", b"x" * 15, b"x" * 16])
def test_a_crowd_of_strangers_does_not_keep_the_peer_out(greeting):
    key = token()
    listener = Listener(HERE, key)
    with contextlib.ExitStack() as crowd, beside(lambda: listener.accept(2, 10)) as accepting:
        for _ in range(50):
            stranger = crowd.enter_context(socket.create_connection((HERE, listener.port), 5))
            with contextlib.suppress(OSError):
                stranger.sendall(greeting)
        peers = [
            crowd.enter_context(connect(("lo", HERE), HERE, listener.port, key, 5))
            for _ in range(2)
        ]
        for peer, accepted in zip(peers, accepting.result(), strict=True):
            crowd.enter_context(accepted)
            assert peer.getsockname()


def test_a_connector_notices_a_listener_without_the_token():
    def pretend():
        connection, _ = fake.accept()
        with connection:
            connection.sendall(os.urandom(16))
            connection.recv(64)
            connection.sendall(os.urandom(32))

    with (
        socket.create_server((HERE, 0)) as fake,
        beside(pretend),
        pytest.raises(Refused, match="does not have the token"),
    ):
        connect(("lo", HERE), HERE, fake.getsockname()[1], token(), 5)


def test_a_proof_cannot_be_sent_back():
    """A stranger that answers with the listener's own proof of another connection is refused:
    the roles differ.
    """
    key = token()
    listener = Listener(HERE, key)
    with (
        beside(lambda: listener.accept(1, 1.5)) as accepting,
        socket.create_connection((HERE, listener.port), 5) as connection,
    ):
        challenge = connection.recv(16)
        connection.sendall(challenge)  # reflected
        connection.sendall(listening._proof(b"", b"listener", challenge, challenge))
        assert connection.recv(64) == b""
    assert isinstance(accepting.exception(), TimeoutError)
    assert listener.refused == 1


def test_the_token_is_not_sent():
    key = token()
    sent = b""
    with socket.create_server((HERE, 0)) as fake:

        def listen():
            nonlocal sent
            connection, _ = fake.accept()
            with connection:
                connection.settimeout(1)
                connection.sendall(bytes(16))
                with contextlib.suppress(TimeoutError):
                    while part := connection.recv(1024):
                        sent += part

        with beside(listen), pytest.raises(Refused):
            connect(("lo", HERE), HERE, fake.getsockname()[1], key, 5)
    assert len(sent) == 16 + 32
    assert key.encode() not in sent
    assert bytes.fromhex(key) not in sent
