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
    [({"host": "gpu-2"}, "it is of gpu-2, not of gpu-1"), ({"uptime": 9000}, "it is not earlier")],
)
def test_snapshot_that_does_not_fit(tmp_path, capsys, values, reason):
    old, new = (
        archive(tmp_path / "old.jsonl", **values),
        archive(tmp_path / "new.jsonl", uptime=4600),
    )
    assert main(["busbw", "check", "--from", new, "--since", old]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("since", "reason", "form"),
    [
        ("old.jsonl", "gpu-1 was booted since, which set its counters to 0", "--format=table"),
        ("missing.jsonl", "no such file or directory", "--nagios"),
        ("others", "no snapshot of this host", "--format=json"),
        ("empty", "no snapshot of this host", "--nagios"),
    ],
)
def test_without_an_earlier_reading_totals_are_judged(tmp_path, capsys, since, reason, form):
    for folder in ("others", "empty"):
        (tmp_path / folder).mkdir()
    archive(tmp_path / "old.jsonl", boot="before")
    archive(tmp_path / "others" / "a.jsonl", host="gpu-2")
    new = Path(archive(tmp_path / "new.jsonl", uptime=4600))
    new.write_text(new.read_text().replace("4: ACTIVE", "1: DOWN"))
    code = main(["busbw", "check", "--from", str(new), "--since", str(tmp_path / since), form])
    assert code == (2 if form == "--nagios" else 1)
    told = capsys.readouterr()
    assert "nic-state" in told.out
    reason = f"{tmp_path}/{since}: {reason}"
    assert f"warning: --since {reason}, so errors are judged by their totals\n" in told.err
    if form == "--format=json":
        assert json.loads(told.out)["no_earlier"] == reason


def test_each_machine_is_compared_with_its_own_snapshot_in_a_folder(tmp_path, capsys):
    for folder in ("w1", "w2"):
        (tmp_path / folder).mkdir()
    archive(tmp_path / "w1" / "a.jsonl", errors=7)
    archive(tmp_path / "w1" / "older.jsonl", errors=4, uptime=900)
    archive(tmp_path / "w1" / "of-an-earlier-boot.jsonl", boot="zero", uptime=10)
    archive(tmp_path / "w1" / "b.jsonl", host="gpu-2", boot="before")
    (tmp_path / "w1" / "cut.jsonl").write_text("{")
    news = [
        archive(tmp_path / "w2" / f"{host}.jsonl", host=host, errors=500, uptime=4500)
        for host in ("gpu-1", "gpu-2", "gpu-3")
    ]
    since = ["--since", str(tmp_path / "w1"), "--only", "nic-symbol-errors", "--wide"]
    assert main(["busbw", "check", "--from", str(tmp_path / "w2"), *since]) == 0
    told = capsys.readouterr().out
    assert "500 errors since the driver was loaded, 496 of them in 1 h" in told
    older = f"{tmp_path}/w1/b.jsonl: gpu-2 was booted since, which set its counters to 0"
    assert f"NO DATA gpu-2: {older}, so errors are judged by their totals\n" in told.replace(
        "HOST", "gpu-2"
    )
    assert "NO DATA gpu-3: no snapshot of this host, so errors are judged by their totals\n" in told
    assert main(["busbw", "check", "--from", news[0], *since]) == 0
    assert "496 of them in 1 h" in capsys.readouterr().out
    assert main(["busbw", "check", "--from", news[2], *since]) == 0
    assert f"--since {tmp_path}/w1: no snapshot of this host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--watch-for", "5s", "--since", "a"], "--watch-for and --since exclude each other"),
        (["--watch-for", "0"], "--watch-for 0: must be seconds above 0"),
        (["--watch-for", "10x"], "--watch-for 10x: must be seconds"),
        (["--watch-for", "1s", "--from", "FILE"], "not a snapshot"),
        (["--since", "FILE", "--hosts", "h1"], "it is one snapshot, and there are several"),
        (["--since", "/missing", "--hosts", "h1"], "/missing: no such file or directory"),
    ],
)
def test_options_that_exclude_each_other(tmp_path, capsys, options, reason):
    file = archive(tmp_path / "a.jsonl")
    assert main(["busbw", "check", *[file if word == "FILE" else word for word in options]]) == 2
    assert reason in capsys.readouterr().err


def test_two_readings_of_this_machine(capsys):
    main(["busbw", "check", "--only", "disk-space", "--watch-for", "50ms", "--all", "--wide"])
    assert "BW263 disk-space" in capsys.readouterr().out
