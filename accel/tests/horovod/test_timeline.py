"""The timeline is a valid trace, whether it was closed or the process was killed."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trace_events

from busbw_accel.horovod.torch.timeline import Timeline

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

SOURCE = str(Path(__file__).parents[2] / "src")
KILLED = """
import os, signal, sys, time
sys.modules["torch"] = None  # not needed here, and slow to import
sys.path.insert(0, {package!r})
from timeline import Timeline
timeline = Timeline()
timeline.start("trace.json", mark_cycles=True)
for number in range(200):
    now = time.monotonic()
    timeline.cycle()
    timeline.span(f"allreduce.{{number % 7}}", "ALLREDUCE", now, time.monotonic(), shape=[[3]] * 500)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_valid_trace(tmp_path):
    script = KILLED.format(package=f"{SOURCE}/busbw_accel/horovod/torch")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=os.environ, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    text = (tmp_path / "trace.json").read_text()
    assert not text.endswith("]\n")
    events = trace_events.read(text)
    assert trace_events.find_violations(events) == []
    assert sum(event["ph"] == "X" for event in events) == 200
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 7, (
        "one process per operation name"
    )


def test_a_full_disk_ends_the_trace_and_not_the_training(tmp_path, capsys):
    timeline, limits = Timeline(), resource.getrlimit(resource.RLIMIT_FSIZE)
    timeline.start(str(tmp_path / "trace"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        for number in range(100):
            timeline.span(f"allreduce.größe {number}", "ALLREDUCE", 0.0, 1e9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    timeline.stop()
    assert f"busbw horovod: the timeline {tmp_path / 'trace'} ends: " in capsys.readouterr().err
    events = trace_events.read((tmp_path / "trace").read_text())
    assert trace_events.find_violations(events) == [] and 5 < len(events) < 100


def test_each_timeline_file_names_only_its_own_tensors(tmp_path):
    timeline = Timeline()
    for name in ("first", "second"):
        timeline.start(str(tmp_path / name))
        timeline.cycle()
        timeline.span(f"allreduce.{name}", "ALLREDUCE", 0.0, 1e9)
    timeline.stop()
    timeline.span("allreduce.late", "ALLREDUCE", 0.0, 1e9)
    for name in ("first", "second"):
        events = trace_events.read((tmp_path / name).read_text())
        assert [
            event["args"]
            for event in events
            if event.get("pid") == 1 and event["name"] == "process_name"
        ] == [{"name": f"allreduce.{name}"}]
        assert not any(event["name"] == "CYCLE_START" for event in events), "only if asked for"
