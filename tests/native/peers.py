"""The test's side of a job's process: starts it in its own network, sends requests and reads the
answers.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import streams

HERE = Path(__file__).parent
LIMIT_S = 60.0
LISTENING = "0A"


class Raised(Exception):
    """The plugin returned an error: its code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Peer:
    """A process that has loaded the library; `inside` is the command line that enters its
    network.
    """

    def __init__(
        self,
        library: Path,
        version: int,
        inside: Iterable[str],
        address: str = "",
        **variables: str,
    ) -> None:
        self.address = address
        # Unbuffered, Python loses the rest of a long answer if a signal interrupts the write.
        strange = ("NCCL_", "BUSBW_", "PYTHONUNBUFFERED")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(strange)
        }
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in stop()
        self.process = subprocess.Popen(
            [
                *inside,
                sys.executable,
                "-X",
                "faulthandler",
                str(HERE / "peer.py"),
                str(library),
                str(version),
            ],
            env={**environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._rest = b""
        self.wrote = ""

    def start(self, do: str, **words: Any) -> None:
        """Send a request without waiting; one at a time."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self.process.stdin.flush()

    def result(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The answer; Raised for an error of the plugin, AssertionError if there is none."""
        assert self.process.stdout
        file, deadline = self.process.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no answer within {limit_s:g} s; it wrote: {self._wrote()}"
            read = os.read(file, 1 << 20)
            assert read, f"ended with {self.process.wait(5)}; it wrote: {self._wrote()}"
            self._rest += read
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        if "raised" in answer:
            raise Raised(answer["raised"], answer["code"])
        return answer

    def call(self, do: str, **words: Any) -> dict[str, Any]:
        """Send a request and wait."""
        self.start(do, **words)
        return self.result()

    def log(self) -> str:
        """All lines that the plugin logged through NCCL."""
        return "\n".join(text for _, _, text in self.call("log")["lines"])

    def ports(self) -> list[int]:
        """TCP ports that it listens on."""
        own_descriptors = streams.descriptors(self.process.pid)
        ports = set()
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.process.pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENING and f"socket:[{words[9]}]" in own_descriptors:
                    ports.add(int(words[1].rsplit(":", 1)[1], 16))
        return sorted(ports)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(60)  # it has ended when this returns

    def stop(self) -> int:
        """Close its input and return its exit status. `wrote` keeps its standard error."""
        assert self.process.stdin and self.process.stdout
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            return self.process.wait(60)
        finally:
            self.kill()
            self.process.stdout.close()
            if not self._errors.closed:
                self.wrote = self._wrote()
                self._errors.close()

    def _wrote(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]


def link(sender: Peer, receiver: Peer, count: int = 1, device: int = 0) -> list[tuple[int, int]]:
    """`count` connections from one process to another: (sending comm, receiving comm) each."""
    listening = [receiver.call("listen", device=device) for _ in range(count)]
    sender.start(
        "connect", handles=[listener["handle"] for listener in listening], device=device, limit_s=10
    )
    receiver.start("accept", listeners=[listener["comm"] for listener in listening], limit_s=10)
    sent, received = sender.result()["comms"], receiver.result()["comms"]
    assert None not in sent and None not in received, (
        f"not connected within 10 s: {sent} {received}"
    )
    return list(zip(sent, received, strict=True))


def both(
    a: Peer, a_words: dict[str, Any], b: Peer, b_words: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Traffic of two processes at once: the flows' reports of each."""
    a.start("traffic", **a_words)
    b.start("traffic", **b_words)
    limit_s = max(words.get("limit_s", 30) for words in (a_words, b_words)) + 10
    return a.result(limit_s)["flows"], b.result(limit_s)["flows"]


def move(
    sender: Peer, receiver: Peer, pair: tuple[int, int], messages: list[list[int]], **words: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One flow of messages from one process to the other: the reports of both."""
    limit_s = words.pop("limit_s", 30)
    sent, received = both(
        sender,
        {
            "flows": [
                {"comm": pair[0], "way": "send", "messages": [message[:2] for message in messages]}
            ],
            "limit_s": limit_s,
        },
        receiver,
        {
            "flows": [{"comm": pair[1], "way": "recv", "messages": messages, **words}],
            "limit_s": limit_s,
        },
    )
    return sent[0], received[0]


def assert_complete(*reports: dict[str, Any], messages: int) -> None:
    """Assert that each flow moved all its messages intact."""
    for report in reports:
        assert report["error"] is None, (
            f"{report['call']} returned {report['error']} after {report['done']} messages"
        )
        assert report["faults"] == []
        assert report["done"] == messages
