"""Exit codes of `busbw check`, and its line for a monitor, on snapshots that are whole, broken
or none.
"""

import json
from pathlib import Path

import msgspec
import pytest
from healthy import healthy
from healthy_gpu import all_changed, changed
from tree import Change, Tree

from busbw.check.brief import brief
from busbw.check.registry import examine
from busbw.check.snapshot import snapshot
from busbw.cli.main import guarded
from busbw.core.errors import NagiosExit
from busbw.core.finding import Verdict

Output = pytest.CaptureFixture[str]
LOST = changed(3, error="Unknown Error")
SLOW = changed(3, power_limit_mw=400000)
STRANGE = changed(3, temperature_c=None, failed={"temperature_c": "Unknown Error"})


def write_snapshot(tree: Tree, file: Path) -> str:
    file.write_text(snapshot(tree.source()))
    return str(file)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Snapshots by name."""
    tmp_path = tmp_path_factory.mktemp("snapshots")
    trees = {"good": healthy(), "warned": healthy(), "lost": healthy(), "strange": healthy()}
    SLOW(trees["warned"])
    LOST(trees["lost"])
    STRANGE(trees["strange"])
    snapshots = {
        name: write_snapshot(tree, tmp_path / f"{name}.jsonl") for name, tree in trees.items()
    }
    content = Path(snapshots["good"]).read_bytes()
    lines = content.splitlines(keepends=True)
    broken = {
        "empty": b"",
        "torn": content[: len(content) // 2],
        "cut": b"".join(lines[: len(lines) // 2]),
        "text": b"hello\n",
        "nothing": b'{"schema": "busbw.host/1"}\n',
    }
    for name, data in broken.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
        snapshots[name] = str(tmp_path / f"{name}.jsonl")
    (tmp_path / "folder").mkdir()
    return snapshots | {
        "folder": str(tmp_path / "folder"),
        "nonexistent": str(tmp_path / "nonexistent"),
        "pattern": f"{tmp_path}/zz*.jsonl",
    }


def test_the_log_of_a_job_is_for_show(tmp_path: Path, capsys: Output) -> None:
    log = tmp_path / "job.log"
    log.write_text("h1:1:2 [0] proxy.cc:9 NCCL WARN Cuda failure 'out of memory'\n")
    for given in (log, tmp_path):
        assert guarded(["check", "--from", str(given)]) == 2
        assert capsys.readouterr().err.endswith(f"hint: busbw show {given}\n")


@pytest.mark.parametrize(
    ("names", "code", "nagios", "line"),
    [
        (["good"], 0, 0, "BUSBW OK - gpu-1: "),
        (["warned"], 0, 1, "BUSBW WARNING - gpu-1: gpu-power-limit GPU 3 | "),
        (["lost"], 1, 2, "BUSBW CRITICAL - gpu-1: gpu-count GPU 3; "),
        (["strange"], 3, 3, "BUSBW UNKNOWN - gpu-1: gpu-temperature GPU 3 | "),
        (["nonexistent"], 2, 3, "/nonexistent: No such file or directory"),
        (["pattern"], 2, 3, ": no file matches"),
        (["empty"], 2, 3, ": it is empty"),
        (["torn"], 2, 3, ": it ends within line "),
        (["cut"], 2, 3, " lines: it was cut off"),
        (["text"], 2, 3, "line 1 is 'hello'"),
        (["nothing"], 3, 3, ": nothing was judged"),
        (["folder"], 2, 3, ": no snapshot in this folder"),
        # Of several, the worst counts; one that is no snapshot does not hide the others.
        (["good", "warned"], 0, 1, "BUSBW WARNING - 2 nodes: gpu-power-limit on "),
        (["good", "strange"], 3, 3, "BUSBW UNKNOWN - "),
        (["good", "empty"], 3, 3, "BUSBW UNKNOWN - 2 nodes: cannot be read: "),
        (["strange", "lost", "warned"], 1, 2, "BUSBW CRITICAL - 3 nodes: gpu-count on "),
        (["empty", "torn"], 2, 3, "BUSBW UNKNOWN - "),
    ],
)
def test_exit_codes_of_snapshots(
    names: list[str], code: int, nagios: int, line: str, files: dict[str, str], capsys: Output
) -> None:
    words = ["check", *(word for name in names for word in ("--from", files[name]))]
    assert guarded(words) == code
    captured = capsys.readouterr()
    assert bool(captured.err) is (code == 2)
    assert guarded([*words, "--nagios"]) == nagios
    (status_line,) = capsys.readouterr().out.splitlines()
    assert line in status_line
    assert status_line.startswith("BUSBW ") and status_line.count("|") <= 1


def test_a_host_name_with_control_characters_is_one_line(tmp_path: Path, capsys: Output) -> None:
    name = "gpu\r\n1\t|\x1b[2J\nBUSBW OK"
    tree = healthy().file("/proc/sys/kernel/hostname", name)
    file = tmp_path / "a.jsonl"
    file.write_text(snapshot(tree.source()))
    for more in ([], ["--from", str(file)]):
        guarded(["check", "--from", str(file), *more, "--nagios"])
        out = capsys.readouterr().out
        assert out.count("\n") == 1 and "\r" not in out and out.count("|") == 1
    guarded(["check", "--from", str(file), "--format", "prometheus"])
    page = capsys.readouterr().out
    assert "\r" not in page and "\x1b" not in page
    assert all(line.startswith(("#", "busbw_check_")) for line in page.splitlines())


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "nosuch"],
        ["--layer", "nosuch"],
        ["--nosuch"],
        ["--load", "1", "--from", "x"],
        ["--from", "x", "--format", "json"],
        ["--from", "x", "--all"],
    ],
)
def test_options_that_are_wrong_are_unknown_to_a_monitor(words: list[str], capsys: Output) -> None:
    assert guarded(["check", *words]) == 2
    assert not capsys.readouterr().out
    assert guarded(["check", *words, "--nagios"]) == 3
    output = capsys.readouterr().out
    assert output.startswith("BUSBW UNKNOWN - ") and output.count("\n") == 1
    assert "x" not in words or "--load" in words or f"{words[2]} with --nagios" in output


def test_json_has_the_verdict_and_optional_findings(files: dict[str, str], capsys: Output) -> None:
    for name, verdict in (
        ("good", "pass"),
        ("warned", "warn"),
        ("lost", "fail"),
        ("strange", "unknown"),
    ):
        guarded(["check", "--from", files[name], "--format", "json"])
        report = json.loads(capsys.readouterr().out)
        assert report["verdict"] == verdict
        assert not any(
            finding["optional"] for finding in report["findings"] if finding["verdict"] != "unknown"
        )


def test_optional_values_are_counted_separately_and_named_last(
    tmp_path: Path, capsys: Output
) -> None:
    tree = healthy().call("euid", "1000").failing("kmsg", "/dev/kmsg: operation not permitted")
    for path in list(tree.paths):
        if path.endswith("/config"):
            tree.data(path, bytes(64))
    STRANGE(tree)
    file = write_snapshot(tree.file("/sys/class/net/eth3/mtu", "1500"), tmp_path / "user.jsonl")
    assert guarded(["check", "--from", file]) == 3
    text = capsys.readouterr().out
    assert "checks: 1 unknown, 2 warn, " in text and " no data (" in text and "need root)" in text
    kinds = [
        line.partition(" ")[0]
        for line in text.splitlines()
        if line.startswith(("UNKNOWN", "WARN", "NO DATA"))
    ]
    assert kinds == sorted(kinds, key=["UNKNOWN", "WARN", "NO"].index)


def test_checks_that_fail_to_judge_a_part_for_one_reason_are_printed_once(
    files: dict[str, str], capsys: Output
) -> None:
    guarded(["check", "--from", files["lost"]])
    one_reason = capsys.readouterr().out
    guarded(["check", "--from", files["lost"], "--from", files["good"]])
    several = capsys.readouterr().out
    for text in (one_reason, several):
        text_in_one_line = " ".join(text.split())
        assert text_in_one_line.count("does not answer NVML: Unknown Error") == 1
        assert text_in_one_line.count("so not judged: gpu-persistence, gpu-ecc-mode, gpu-ecc") == 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (SLOW, "BUSBW CRITICAL - gpu-1: gpu-power-limit GPU 3 | fail=0 unknown=0 warn=1 "),
        (STRANGE, "BUSBW UNKNOWN - gpu-1: gpu-temperature GPU 3 | fail=0 unknown=1 warn=0 "),
        (lambda tree: tree, "BUSBW OK - gpu-1: "),
    ],
)
def test_a_warning_may_be_critical(change: Change, line: str) -> None:
    tree = healthy()
    change(tree)
    code, status_line = brief(examine(tree.source()), Verdict.WARN)
    assert status_line.startswith(line)
    assert NagiosExit(code).name == line.split()[1]


def test_many_findings_are_counted() -> None:
    tree = healthy()
    all_changed(power_limit_mw=400000)(tree)
    changed(3, persistence=False)(tree)
    _, line = brief(examine(tree.source()))
    assert line.startswith("BUSBW WARNING - gpu-1: gpu-persistence GPU 3; gpu-power-limit GPU 0; ")
    assert "gpu-power-limit GPU 6; 1 more | " in line


def test_a_snapshot_states_its_length(tmp_path: Path) -> None:
    first, *other_lines = snapshot(healthy().source()).splitlines()
    assert msgspec.json.decode(first) == {"schema": "busbw.host/1", "lines": len(other_lines)}
