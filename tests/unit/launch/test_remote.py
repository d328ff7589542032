"""Commands on several hosts at once: what they answer, and that they end.

All run on this host, where no agent is needed.
"""

import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.launch import remote

HOST = "localhost"


def run(script: str, limit_s: float = 10.0) -> remote.CommandResult:
    (result,) = remote.run([HOST], ["sh", "-c", script], limit_s)
    return result


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_the_answer_follows_a_greeting():
    assert run("""echo 'Welcome {you}!'; echo '{"a": 1}'""").answer(dict[str, int]) == {"a": 1}


@pytest.mark.parametrize("answer", ["", "garbage", "[1, 2]", '{"a": "b"}', r'{"a\377": 1}'])
def test_an_invalid_answer_is_a_value_error(answer):
    with pytest.raises(ValueError):
        run(f"printf '{answer}'").answer(dict[str, int])


def test_the_last_line_of_stderr_is_the_problem():
    result = run(
        "yes 'a long greeting' | head -n 10000 >&2; echo 'Permission denied' >&2; exit 255"
    )
    assert result.problem == "exit code 255: Permission denied"


def test_a_command_without_an_end_is_killed_with_its_children(tmp_path: Path):
    for limit_s in (0.5, 2.0, 8.0):  # on a busy machine a shell may take longer to say anything
        result = run(
            f"echo started >&2; sleep 60 & echo $! > {tmp_path}/pid; wait", limit_s=limit_s
        )
        if result.error and (tmp_path / "pid").read_text():
            break
    assert (result.problem, result.error) == ("no answer within the time limit", "started\n")
    pid = int((tmp_path / "pid").read_text())
    assert within(5, lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("stream", [1, 2])
def test_an_endless_answer_does_not_fill_the_memory(monkeypatch, stream):
    monkeypatch.setattr(remote, "_ANSWER_BYTES", 1 << 20)
    result = run(
        f"while :; do echo 0123456789; sleep 0.001; head -c 100000 /dev/zero; done >&{stream}"
    )
    assert (result.code, result.problem, result.out) == (None, "an answer of more than 1 MiB", b"")


@pytest.mark.parametrize("name", ["", "-oProxyCommand=true", "h1 h2", "h1;true", "$(true)"])
def test_an_invalid_host_name_is_not_contacted(name):
    (result,) = remote.run([name], ["true"], 10)
    assert result.problem == "exit code 127: this is not a host name"


def test_no_file_is_left_open():
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a number
    for script in ("true", "exit 1", "sleep 60"):
        run(script, limit_s=0.1)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - a number


def test_the_end_of_a_short_error_is_all_of_it() -> None:
    assert remote.last_bytes(io.BytesIO(b"ssh: no route")) == "ssh: no route"
