"""A signed report: OpenSSH verifies it, a changed byte is noticed, and its figures can be
computed anew from it alone.
"""

import contextlib
import io
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from busbw.cli.main import guarded

pytestmark = pytest.mark.skipif(
    not shutil.which("ssh-keygen"), reason="no ssh-keygen: make test-tools"
)
SWEEP = shlex.split("run all_reduce -b 1K -e 4K --engine sim -np 4 --repeats 8")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two measured results and a key."""
    folder = tmp_path_factory.mktemp("measured")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")],
        check=True,
        timeout=30,
    )
    for name, alpha in (("before", 5), ("after", 9)):
        assert (
            guarded(
                [
                    *SWEEP,
                    "--sim",
                    f"alpha_us={alpha},gbps=100",
                    "--json",
                    str(folder / f"{name}.json"),
                ]
            )
            == 0
        )
    return folder


@pytest.fixture(scope="module")
def printed(measured: Path) -> str:
    """What the command printed that wrote the results as a signed page."""
    with contextlib.chdir(measured), contextlib.redirect_stdout(io.StringIO()) as output:
        words = ["report", "before.json", "after.json", "--output", "proof.html", "--sign", "key"]
        assert guarded(words) == 0
    return output.getvalue()


@pytest.fixture
def signed(printed: str, measured: Path, tmp_path, monkeypatch) -> list[str]:
    """The results as a signed page, in a folder of the test's own; what the command printed."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return printed.splitlines()


def verified(lines: list[str]) -> subprocess.CompletedProcess[str]:
    """The printed commands, run by a shell."""
    return subprocess.run(
        ["sh", "-ec", "\n".join(lines[lines.index("verify with:") + 1 :])],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_printed_commands_verify_the_page(signed):
    assert signed[:2] == ["proof.html", "proof.html.sig"]
    result = verified(signed)
    assert result.returncode == 0 and result.stdout.startswith(
        'Good "busbw" signature for busbw with ED25519 key'
    ), result.stderr


def test_a_changed_byte_fails(signed):
    page = Path("proof.html")
    data = bytearray(page.read_bytes())
    at = data.index(b"&quot;" if b"&quot;" in data else b'"time_s"') + 40
    for position in (at, 0, len(data) - 1, len(data) // 2):
        changed = bytearray(data)
        changed[position] ^= 1
        page.write_bytes(changed)
        assert verified(signed).returncode != 0
    page.write_bytes(data)
    assert verified(signed).returncode == 0


def test_another_key_does_not_verify(signed):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other"], check=True, timeout=30
    )
    own_key = Path("key.pub").read_text().split()[1]
    other = Path("other.pub").read_text().split()[1]
    assert verified([line.replace(own_key, other) for line in signed]).returncode != 0


def test_the_comparison_can_be_computed_from_the_page_alone(signed, capsys):
    def compared(*words: str) -> list[dict[str, object]]:
        guarded(["compare", *words, "--format", "json"])
        return json.loads(capsys.readouterr().out)["cells"]

    cells = compared("before.json", "after.json")
    assert cells == compared("proof.html", "proof.html", "--table", "1", "--table", "2")
    assert {cell["verdict"] for cell in cells} == {"slower"} and all(
        cell["low"] > 1 for cell in cells
    ), "with intervals"


def test_results_in_the_page_are_the_results(signed, capsys):
    for number, name in enumerate(("before", "after"), 1):
        assert guarded(["show", "proof.html", "--table", str(number), "--format", "json"]) == 0
        page = capsys.readouterr().out
        assert guarded(["show", f"{name}.json", "--format", "json"]) == 0
        assert page == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "proof.html"], "this page has 2 results"),
        (["show", "proof.html", "--table", "3"], "--table 3: this page has 2"),
        (["report", "before.json", "--sign", "nokey"], "--sign nokey: "),
        (["report", "before.json", "--output", "-", "--sign", "key"], "--sign signs a file"),
    ],
)
def test_impossible_requests_are_usage_errors(signed, capsys, words, message):
    assert guarded(words) == 2
    assert message in capsys.readouterr().err


def test_a_page_that_is_not_signed_has_no_results(signed, capsys):
    guarded(["report", "before.json"])
    capsys.readouterr()
    assert guarded(["show", "before.html"]) == 2
    assert "only pages of busbw report --sign have them" in capsys.readouterr().err
