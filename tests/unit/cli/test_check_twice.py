"""`busbw check --watch-for` and `--since`: two readings of one machine."""

import json
from pathlib import Path

import pytest
from healthy import healthy

from busbw.check.snapshot import snapshot
from busbw.cli.main import main
from busbw.host.snapshot import recorded

PORT = "/sys/class/infiniband/mlx5_3/ports/1/counters/symbol_error"


def archive(path, *, errors=0, host="gpu-1", boot="one", uptime=1000):
    tree = (
        healthy()
        .file(PORT, str(errors))
        .file("/proc/uptime", f"{uptime} 1.0")
        .file("/proc/sys/kernel/hostname", host)
    )
    tree.file("/proc/sys/kernel/random/boot_id", boot)
    lines = [{"schema": "busbw.host/1"}]
    lines += [{"path": name, **fields} for name, fields in tree.paths.items()] + [
        {"call": name, **fields} for name, fields in tree.calls.items()
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


@pytest.mark.parametrize(("errors", "code"), [(60_000, 0), (60_500, 1)])
def test_an_older_snapshot_gives_the_rate(tmp_path, capsys, errors, code):
    old, new = (
        archive(tmp_path / "old.jsonl", errors=60_000),
        archive(tmp_path / "new.jsonl", errors=errors, uptime=4600),
    )
    arguments = [
        "busbw",
        "check",
        "--from",
        new,
        "--since",
        old,
        "--only",
        "nic-symbol-errors",
        "--all",
        "--format",
        "json",
    ]
    assert main(arguments) == 0
    (port,) = [
        finding
        for finding in json.loads(capsys.readouterr().out)["findings"]
        if finding["subject"] == "mlx5_3"
    ]
    assert (port["verdict"] == "warn") == bool(
        code
    ) and f"{errors - 60_000} of them in 1 h" in port["message"]


def test_a_saved_snapshot_is_an_older_one(tmp_path, capsys):
    saved = tmp_path / "saved.jsonl"
    saved.write_text(snapshot(recorded(Path(archive(tmp_path / "old.jsonl")))))
    new = archive(tmp_path / "new.jsonl", uptime=4600)
    assert main(["busbw", "check", "--from", new, "--since", str(saved)]) == 0


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"host": "gpu-2"}, "it is of gpu-2, not of gpu-1"),
        ({"boot": "before"}, "gpu-1 was booted since"),
        ({"uptime": 9000}, "it is not earlier"),
    ],
)
def test_snapshot_that_does_not_fit(tmp_path, capsys, values, reason):
    old, new = (
        archive(tmp_path / "old.jsonl", **values),
        archive(tmp_path / "new.jsonl", uptime=4600),
    )
    assert main(["busbw", "check", "--from", new, "--since", old]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--watch-for", "5s", "--since", "a"], "--watch-for and --since exclude each other"),
        (["--watch-for", "0"], "--watch-for 0: must be a time above 0"),
        (["--watch-for", "10x"], "--watch-for 10x: must be a time"),
        (["--watch-for", "1s", "--from", "FILE"], "not a snapshot"),
        (["--since", "FILE", "--hosts", "h1"], "--since is for one machine"),
    ],
)
def test_options_that_exclude_each_other(tmp_path, capsys, options, reason):
    file = archive(tmp_path / "a.jsonl")
    assert main(["busbw", "check", *[file if word == "FILE" else word for word in options]]) == 2
    assert reason in capsys.readouterr().err


def test_two_readings_of_this_machine(capsys):
    main(["busbw", "check", "--only", "disk-space", "--watch-for", "50ms", "--all", "--wide"])
    assert "BW263 disk-space" in capsys.readouterr().out
