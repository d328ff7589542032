"""The verdicts of checks as metrics, read by Prometheus' own parser."""

import os
import stat
from pathlib import Path

import pytest
from healthy import healthy
from healthy_gpu import changed
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from promtool import promtool

from busbw.check import metrics
from busbw.check.snapshot import snapshot
from busbw.check.types import CheckReport, ClusterReport, ReportedFinding
from busbw.cli.main import guarded
from busbw.core.finding import Verdict

Output = pytest.CaptureFixture[str]
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(text: str) -> Samples:
    """The labels and values of each metric; no two values have the same labels."""
    samples: Samples = {}
    for family in parser.text_string_to_metric_families(text):
        samples[family.name] = [(sample.labels, sample.value) for sample in family.samples]
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(labels) == len(set(labels)), family.name
    return samples


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Snapshots by name: two of a healthy host, and one of a host with a lost GPU."""
    folder = tmp_path_factory.mktemp("snapshots")
    lost = healthy().file("/proc/sys/kernel/hostname", "gpu-2\n")
    changed(3, error="Unknown Error")(lost)
    lost.file("/sys/class/infiniband/mlx5_2/fw_ver", "28.40.1000")
    lost.call("time", "2026-11-27T14:00:00+00:00")
    changed(2, power_limit_mw=400000)(lost)
    trees = {"good": healthy(), "again": healthy(), "lost": lost}
    for name, tree in trees.items():
        (folder / f"{name}.jsonl").write_text(snapshot(tree.source()))
    (folder / "text.jsonl").write_text("hello\n")
    return {path.stem: str(path) for path in folder.iterdir()}


def checked_metrics(files: dict[str, str], names: list[str], capsys: Output) -> tuple[int, str]:
    words = [word for name in names for word in ("--from", files[name])]
    code = guarded(["check", *words, "--format", "prometheus"])
    return code, capsys.readouterr().out


def test_a_machine_has_a_verdict_of_each_check_and_its_bad_parts(files, capsys):
    code, text = checked_metrics(files, ["lost"], capsys)
    samples = parsed(text)
    verdicts = {labels["check"]: labels for labels, value in samples[metrics.VERDICT]}
    assert code == 1
    assert verdicts["gpu-count"] == {
        "host": "gpu-2",
        "id": "BW001",
        "check": "gpu-count",
        "layer": "GPU",
        "verdict": "fail",
    }
    assert verdicts["kernel-port-range"]["verdict"] == "pass"
    bad = {(labels["check"], labels["subject"]): labels for labels, _ in samples[metrics.FINDINGS]}
    assert bad["gpu-count", "GPU 3"]["verdict"] == "fail"
    assert bad["gpu-power-limit", "GPU 2"]["verdict"] == "warn"
    assert samples[metrics.HOST_VERDICT] == [({"host": "gpu-2", "verdict": "fail"}, 1)]
    assert samples[metrics.TIME] == [({"host": "gpu-2"}, 1795788000)]
    assert promtool("check", "metrics", stdin=text.encode()) == []


def test_hosts_of_one_name_and_files_that_are_no_snapshot_are_told_apart(files, capsys):
    _, text = checked_metrics(files, ["good", "again", "lost", "text"], capsys)
    samples = parsed(text)
    answered = {labels["host"]: value for labels, value in samples[metrics.ANSWERED]}
    assert answered == {files["good"]: 1, files["again"]: 1, "gpu-2": 1, files["text"]: 0}
    different = {labels["host"]: value for labels, value in samples[metrics.DIFFERENT]}
    assert different["gpu-2"] > 0
    assert different[files["good"]] == 0


def test_two_hosts_of_one_name_have_series_of_their_own():
    reports = [CheckReport(host="gpu-1", at="2026-11-27T14:00:00+00:00") for _ in range(2)]
    samples = parsed(metrics.cluster_text(ClusterReport(differences=[], nodes=reports)))
    assert [labels["host"] for labels, _ in samples[metrics.TIME]] == ["gpu-1", "gpu-1 (2)"]


@given(host=st.text(max_size=8), subject=st.text(max_size=8), at=st.text(max_size=8))
def test_names_with_any_characters_are_read_back(host, subject, at):
    finding = ReportedFinding(
        id="BW001", name="n", layer="GPU", verdict=Verdict.FAIL, subject=subject, message=""
    )
    report = CheckReport(host=host, at=at, findings=[finding, finding])
    ((labels, count),) = parsed(metrics.machine_text(report))[metrics.FINDINGS]
    assert count == 2
    if host.isascii() and host.isprintable() and subject.isascii() and subject.isprintable():
        assert (labels["host"], labels["subject"]) == (host, subject)


def test_output_replaces_the_file_at_once_and_others_can_read_it(files, tmp_path, capsys):
    file = tmp_path / "busbw.prom"
    file.write_text("old")
    before = file.stat().st_ino
    words = ["check", "--from", files["lost"], "--format", "prometheus", "--output", str(file)]
    umask = os.umask(0o022)
    try:
        assert guarded(words) == 1
    finally:
        os.umask(umask)
    assert capsys.readouterr().out == ""
    assert metrics.VERDICT in parsed(file.read_text()) and file.stat().st_ino != before
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "/dev/null/x"], "--output /dev/null/x: Not a directory"),
        (["--output", "x", "--list"], "--output x: --list and --learn print to stdout"),
        (["--output", "/dev/null"], "--output /dev/null: is a device or a pipe"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_the_checks(words, message, capsys):
    assert guarded(["check", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_check_that_cannot_run_leaves_the_earlier_file(files, tmp_path):
    file = tmp_path / "busbw.prom"
    file.write_text("old")
    words = ["check", "--from", files["text"], "--format", "prometheus", "--output", str(file)]
    assert guarded(words) == 2
    assert Path(file).read_text() == "old"
