"""NCCL's log is captured while it starts, goes where the user wants it, and costs nothing
afterwards.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from busbw.engines.nccl_log import Log, expanded, listening

pytestmark = pytest.mark.usefixtures("ranks_are_forks")
LIMIT_S = 60
BEFORE_2_28 = """\
a1:11434:11434 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).
a1:11434:11434 [0] NCCL INFO NET/Socket : Using [0]ens3:172.31.11.73<0>
a1:11434:11434 [0] NCCL INFO Using network Socket
"""
SINCE_2_28 = """\
NCCL version 2.28.9+cuda13.0
a1:6801:6839 [1] NCCL INFO Initialized NET plugin IB
a1:6801:6839 [1] NCCL INFO Assigned NET plugin IB to comm
a1:6801:6839 [1] NCCL INFO Using network IB
"""
TWO = (
    "a1:1:2 [0] NCCL INFO Using network AWS Libfabric\na1:1:3 [1] NCCL INFO Using network Socket\n"
)
# Plays NCCL: opens its file once, as NCCL does, and writes a line inside and one after.
PLAYED = """
import os, sys
from busbw.engines.nccl_log import listening
with listening() as log:
    file = os.environ.get("NCCL_DEBUG_FILE")
    out = open(file, "w", buffering=1) if file else sys.stdout
    out.write("h:1:1 [0] NCCL INFO Using network Socket\\n")
out.write("h:1:1 [0] NCCL INFO later\\n")
out.flush()
sys.stderr.write(f"{log.networks} {sorted(name for name in os.environ if name.startswith('NCCL'))}")
"""
# The log stays open: a line while it does, and one after its end.
STAYS = """
import os, sys, time
os.chdir(sys.argv[1])
from busbw.engines.nccl_log import listening
with listening(stay=True) as log:
    file = os.environ.get("NCCL_DEBUG_FILE")
    out = open(file, "w", buffering=1) if file else sys.stdout
    out.write("first\\n")
out.write("second\\n")
log.close()
out.write("third\\n")
out.flush()
sys.stderr.write(f"{'second' in log.text} {'third' in log.text}")
"""
REAL = """
import ctypes, os, sys
from busbw.engines.nccl_log import listening
with listening() as log:
    nccl = ctypes.CDLL(sys.argv[1])
    code = nccl.ncclGetUniqueId(ctypes.create_string_buffer(128))
if code:
    sys.exit(f"ncclGetUniqueId returned {code}")
sys.stderr.write(log.text)
"""


def run(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    env = {**clean, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def python(program: str, *words: str, **variables: str) -> tuple[str, str]:
    """Its stdout and stderr."""
    result = run(program, *words, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        (BEFORE_2_28, ("Socket",)),
        (SINCE_2_28, ("IB",)),
        (TWO, ("AWS Libfabric", "Socket")),
        ("", ()),
    ],
)
def test_networks_are_read_from_nccls_log_lines(text: str, networks: tuple[str, ...]) -> None:
    assert Log(lambda: text).networks == networks


def test_the_log_is_not_shown_unless_requested() -> None:
    out, err = python(PLAYED)
    assert (out, err) == ("", "('Socket',) []")


@pytest.mark.parametrize("level", ["INFO", "trace"])
def test_a_log_requested_on_stdout_is_complete(level: str) -> None:
    out, err = python(PLAYED, NCCL_DEBUG=level)
    assert out.splitlines() == [
        "h:1:1 [0] NCCL INFO Using network Socket",
        "h:1:1 [0] NCCL INFO later",
    ]
    assert err == "('Socket',) ['NCCL_DEBUG']"


def test_log_lines_before_a_crash_are_shown() -> None:
    dying = PLAYED.replace('Socket\\n")', 'Socket\\n")\n    os.kill(os.getpid(), 9)')
    result = run(dying, NCCL_DEBUG="INFO")
    assert result.returncode == -9
    assert result.stdout == "h:1:1 [0] NCCL INFO Using network Socket\n"


def test_the_users_log_file_is_read_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    out, err = python(PLAYED, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(file))
    assert (out, err) == ("", "('Socket',) ['NCCL_DEBUG', 'NCCL_DEBUG_FILE']")
    assert "later" in file.read_text()


def test_a_log_to_a_pipe_is_left_to_the_user() -> None:
    out, err = python(PLAYED, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="/dev/stderr")
    shown = "h:1:1 [0] NCCL INFO Using network Socket\nh:1:1 [0] NCCL INFO later\n"
    assert (out, err) == ("", f"{shown}() ['NCCL_DEBUG', 'NCCL_DEBUG_FILE']")


@pytest.mark.parametrize(
    ("variables", "shown"),
    [({}, 0), ({"NCCL_DEBUG": "INFO"}, 3), ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "log"}, 0)],
)
def test_a_log_that_stays_open_is_read_to_its_end(
    tmp_path: Path, variables: dict[str, str], shown: int
) -> None:
    out, err = python(STAYS, str(tmp_path), **variables)
    assert len(out.splitlines()) == shown
    assert err == "True False"


def test_a_log_with_a_line_for_each_call_is_not_read_on() -> None:
    out, err = python(STAYS, ".", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL")
    assert (len(out.splitlines()), err) == (3, "False False")


def test_a_lower_log_level_gives_no_network() -> None:
    out, err = python(PLAYED, NCCL_DEBUG="WARN")
    assert "Using network" in out, "log lines of that level go to stdout as usual"
    assert err == "() ['NCCL_DEBUG']"


def test_an_error_while_listening_restores_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    monkeypatch.setenv("NCCL_DEBUG_SUBSYS", "COLL")
    before = list(Path("/proc/self/fd").iterdir())
    with pytest.raises(KeyError), listening():
        assert os.environ["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
        raise KeyError
    assert ("NCCL_DEBUG" in os.environ, os.environ["NCCL_DEBUG_SUBSYS"]) == (False, "COLL")
    assert list(Path("/proc/self/fd").iterdir()) == before


def test_placeholders_in_the_log_file_name_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "gpu7.example.org")
    assert expanded("/tmp/n.%h.%p.100%%.%x") == f"/tmp/n.gpu7.{os.getpid()}.100%.%x"


@pytest.mark.parametrize("level", ["", "INFO"])
def test_the_log_of_a_real_nccl_is_captured(level: str) -> None:
    package = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    places = package.submodule_search_locations or () if package else ()
    libraries = [file for folder in places for file in Path(folder).glob("lib/libnccl.so.2")]
    if not libraries:
        pytest.skip("no NCCL library is installed")
    variables = {"NCCL_DEBUG": level} if level else {}
    out, err = python(REAL, str(libraries[0]), NCCL_SOCKET_IFNAME="lo", **variables)
    assert "NCCL INFO" in err
    assert (err.splitlines()[0] in out) == bool(level), (
        "captured lines are shown only if the user asked for them"
    )
