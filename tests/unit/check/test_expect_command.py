"""`busbw check --learn`, `--expect` and `--fail-on` as commands."""

import io
import json
import tomllib
from datetime import date

import msgspec
import pytest
from equipped import LOSSES, equipped

from busbw.check.expect import file
from busbw.check.expect.learn import learn
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.check.snapshot import snapshot
from busbw.cli.main import guarded

GOOD = text(learn(Machine(equipped().source())), "Learned from a test.")
MTU = (
    equipped(layer="Ethernet")
    .file("/sys/class/net/eth3/mtu", "1500")
    .file("/sys/class/net/eth5/mtu", "1500")
)
MUTE = '[[mute]]\ncheck = "{check}"\nreason = "ticket 4711"\nuntil = {until}\n'


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    """A good node, one that lost its ports, and the file of the good one."""
    folder = tmp_path_factory.mktemp("nodes")
    worse = equipped().file("/proc/sys/kernel/hostname", "gpu-2")
    LOSSES["all ports"].change(worse)
    for name, tree in {"good": equipped(), "worse": worse}.items():
        (folder / f"{name}.jsonl").write_text(snapshot(tree.source()))
    (folder / "node.toml").write_text(GOOD)
    return folder


def run(capfd, *words):
    code = guarded(["check", *map(str, words)])
    out, err = capfd.readouterr()
    return code, out, err


def test_learn_and_expect(snapshots, capfd):
    code, out, _ = run(capfd, "--learn", "--from", snapshots / "good.jsonl")
    assert code == 0 and tomllib.loads(out) == tomllib.loads(GOOD)
    (snapshots / "learned.toml").write_text(out)
    code, out, _ = run(
        capfd, "--from", snapshots / "good.jsonl", "--expect", snapshots / "learned.toml"
    )
    assert code == 0 and "FAIL" not in out
    code, out, _ = run(
        capfd, "--from", snapshots / "worse.jsonl", "--expect", snapshots / "learned.toml"
    )
    assert code == 1
    assert "FAIL    mlx5_[0-7] is missing: 0 RDMA ports, expected 8  [BW293 expect-ports]\n" in out
    assert "seen: /sys/class/infiniband: none, expected 8 (learned.toml line 2" in out
    code, out, _ = run(
        capfd,
        "--nagios",
        "--only",
        "expect-ports",
        "--from",
        snapshots / "worse.jsonl",
        "--expect",
        snapshots / "learned.toml",
    )
    assert code == 2 and out.startswith("BUSBW CRITICAL - gpu-2: ") and "expect-ports mlx5_0" in out


def test_nothing_is_learned_from_a_node_that_fails(tmp_path, capfd):
    tree = equipped()
    tree.file("/sys/class/infiniband/mlx5_1/ports/1/phys_state", "3: Disabled").drop(
        "/proc/modules"
    ).file("/proc/modules", "mlx5_ib 1")
    (tmp_path / "bad.jsonl").write_text(snapshot(tree.source()))
    code, out, err = run(capfd, "--learn", "--from", tmp_path / "bad.jsonl")
    assert code == 1 and out == ""
    assert (
        "FAIL    " in err
        and "error: nothing is learned from gpu-1: " in err
        and "hint: learn from a good node, or add --accept-faults" in err
    )
    code, out, _ = run(capfd, "--learn", "--accept-faults", "--from", tmp_path / "bad.jsonl")
    assert code == 0 and tomllib.loads(out)["gpus"]["count"] == 8


def test_several_snapshots_are_compared_with_one_file(snapshots, capfd):
    words = ("--from", f"{snapshots}/*.jsonl", "--expect", snapshots / "node.toml")
    code, out, _ = run(capfd, *words)
    assert code == 1
    assert (
        "FAIL    mlx5_[0-7] is missing: 0 RDMA ports, expected 8  [BW293 expect-ports]\n"
        "        on: gpu-2" in out
    )
    code, out, _ = run(capfd, *words, "--format", "json")
    nodes = json.loads(out)["nodes"]
    assert [
        sum(
            finding["verdict"] == "fail" and finding["id"] == "BW293"
            for finding in node["findings"]
        )
        for node in nodes
    ] == [0, 8]


def test_a_node_of_several_reads_the_file_from_stdin(snapshots, capfd, monkeypatch):
    sent = msgspec.json.encode(file.Text("gpu.toml", "[storage]\nnvme = 99\n", date(2026, 11, 26)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent)))
    code, out, _ = run(capfd, "--node", "--expect", "-", "--only", "expect-storage")
    (finding,) = json.loads(out)["report"]["findings"]
    assert code == 0 and finding["id"] == "BW298" and finding["verdict"] in ("fail", "unknown")


@pytest.mark.usefixtures("ranks_are_forks")
def test_the_file_travels_to_the_hosts(snapshots, capfd):
    (snapshots / "much.toml").write_text("[memory]\nram_bytes = 999999999999999\n")
    code, out, err = run(
        capfd,
        "--hosts",
        "localhost,127.0.0.1",
        "--expect",
        snapshots / "much.toml",
        "--only",
        "expect-memory",
    )
    assert code == 1, err
    assert "on: all nodes" in out and "(much.toml line 2)" in out


def test_muted_findings_are_shown_and_counted(snapshots, capfd):
    muted = GOOD + "".join(
        MUTE.format(check=name, until="2999-01-01")
        for name in ("expect-ports", "nic-present", "expect-pcie")
    )
    (snapshots / "muted.toml").write_text(muted)
    words = (
        "--from",
        snapshots / "worse.jsonl",
        "--expect",
        snapshots / "muted.toml",
        "--layer",
        "expected",
    )
    code, out, _ = run(capfd, *words)
    assert code == 0
    assert "MUTED   mlx5_[0-7] is missing: 0 RDMA ports, expected 8 (fail)\n" in out
    assert "until: 2999-01-01, muted.toml line" in out and "ticket 4711" in out
    code, out, _ = run(capfd, *words, "--nagios")
    assert code == 0 and out.rstrip().endswith("muted=8")
    code, out, _ = run(capfd, *words, "--format", "json")
    assert len(json.loads(out)["muted"]) == 8
    code, out, _ = run(
        capfd, "--from", snapshots / "worse.jsonl", "--from", snapshots / "good.jsonl", *words[2:]
    )
    assert code == 0 and "MUTED   mlx5_[0-7] is missing" in out
    words = ("--from", snapshots / "good.jsonl", *words, "--nagios")
    assert run(capfd, *words)[1].endswith(" silent=0 unreadable=0 muted=1\n")


MAINTENANCE = MUTE.format(check="*", until="2999-01-01")


@pytest.mark.parametrize(
    ("host", "differ"), [("gpu-2", False), ("gpu-[1-9]", False), ("gpu-[3-9]", True)]
)
def test_a_host_whose_checks_are_muted_differs_from_none(host, differ, snapshots, capfd):
    (snapshots / "away.toml").write_text(f'{GOOD}{MAINTENANCE}host = "{host}"\n')
    files = [f"--from={snapshots}/{name}.jsonl" for name in ("good", "worse")]
    words = [*files, "--expect", snapshots / "away.toml", "--format", "json"]
    assert bool(json.loads(run(capfd, *words)[1])["differences"]) == differ


RDMA, NUMA = "/sys/class/infiniband", "/proc/sys/kernel/numa_balancing"
DOWN = {
    f"{RDMA}/mlx5_5/ports/1/state": "1: DOWN",
    f"{RDMA}/mlx5_5/ports/1/phys_state": "3: Disabled",
    f"{RDMA}/mlx5_5/ports/1/rate": "10 Gb/sec (1X SDR)",
}
OF_PORT = 'check = "nic-state"\nsubject = "mlx5_5"\n'


@pytest.mark.parametrize(
    ("files", "mute", "left"),
    [
        (DOWN, OF_PORT, []),
        (DOWN, OF_PORT.replace("mlx5_5", "mlx5_6"), ["rate", "state"]),
        ({**DOWN, f"{RDMA}/mlx5_3/ports/1/state": "1: DOWN"}, OF_PORT, ["state"]),
        ({**DOWN, f"{RDMA}/mlx5_5/fw_ver": "1.0"}, OF_PORT, ["firmware"]),
        ({NUMA: "1"}, 'check = "kernel-numa-balancing"\n', []),
        ({NUMA: "1"}, OF_PORT, ["NUMA balancing"]),
    ],
)
def test_what_differs_by_a_muted_fault_is_no_difference(files, mute, left, tmp_path, capfd):
    for host in ("gpu-1", "gpu-2", "gpu-3"):
        tree = equipped().file("/proc/sys/kernel/hostname", host).file(NUMA, "0")
        for path, value in files.items() if host == "gpu-2" else ():
            tree.file(path, value)
        (tmp_path / f"{host}.jsonl").write_text(snapshot(tree.source()))
    end = 'host = "gpu-2"\nreason = "ticket 4711"\nuntil = 2999-01-01\n'
    (tmp_path / "mute.toml").write_text(f"[[mute]]\n{mute}{end}")
    words = ["--from", tmp_path, "--expect", tmp_path / "mute.toml", "--format", "json"]
    differing = json.loads(run(capfd, *words)[1])["differences"]
    assert sorted(one["fact"].removesuffix(" of RDMA ports") for one in differing) == left


@pytest.mark.parametrize(
    ("more", "of", "told"),
    [
        ('check = "expect-ports"\n', "worse", []),
        ('check = "expect-ports"\n', "good", ["accepts no finding"]),
        ('check = "expect-ports"\n', "both", []),
        (
            'check = "expect-ports"\nsubject = "mlx5_77"\n',
            "both",
            ["accepts no finding of mlx5_77"],
        ),
        (
            'check = "expect-ports"\nhost = "gpu-9"\n',
            "both",
            ["is for gpu-9, which is none of these"],
        ),
        ('check = "expect-ports"\nhost = "gpu-9"\n', "good", []),
        ('check = "*"\nhost = "gpu-2"\n', "both", []),
        ('check = "nic-mtu"\n', "both --only expect-ports", []),
    ],
)
def test_a_mute_that_accepts_nothing_is_told(more, of, told, snapshots, capfd):
    end = 'reason = "ticket 4711"\nuntil = 2999-01-01\n'
    (snapshots / "unused.toml").write_text(f"{GOOD}\n[[mute]]\n{more}{end}")
    names, *only = of.split()
    files = ["good", "worse"] if names == "both" else [names]
    words = [word for name in files for word in ("--from", snapshots / f"{name}.jsonl")]
    words += ["--expect", snapshots / "unused.toml", *(only or ["--only", "expect-ports"])]
    _, _, err = run(capfd, *words)
    warned = [line for line in err.splitlines() if line.startswith("warning: unused.toml line")]
    assert len(warned) == len(told)
    assert all(text in line for text, line in zip(told, warned, strict=True))


def test_a_mute_that_has_ended_drains_no_node(snapshots, capfd):
    (snapshots / "ended.toml").write_text(GOOD + MUTE.format(check="nic-mtu", until="2026-11-01"))
    options = f"--expect {snapshots}/ended.toml --fail-on warn"
    assert guarded(["manifest", "prolog", "--check-options", options]) == 0
    (step,) = [line for line in capfd.readouterr().out.splitlines() if " --expect " in line]
    added = step.partition("--fail-on warn ")[2].split()
    words = ["--from", snapshots / "good.jsonl", *options.split()]
    assert run(capfd, *words)[0] == 1 and run(capfd, *words, *added)[0] == 0


def test_a_warning_may_count_as_a_failure(tmp_path, capfd):
    (tmp_path / "mtu.jsonl").write_text(snapshot(MTU.source()))
    words = ("--from", tmp_path / "mtu.jsonl", "--only", "nic-mtu")
    assert run(capfd, *words)[0] == 0
    code, out, _ = run(capfd, *words, "--fail-on", "warn")
    assert code == 1 and out.count("WARN") == 1
    assert run(capfd, *words, "--nagios")[0] == 1
    code, out, _ = run(capfd, *words, "--nagios", "--fail-on", "warn")
    assert code == 2 and out.startswith("BUSBW CRITICAL - gpu-1: nic-mtu mlx5_3; nic-mtu mlx5_5")
    assert run(capfd, *words, *words[:2], "--fail-on", "warn")[0] == 1
    assert run(capfd, *words[:2], "--only", "nic-rate", "--fail-on", "warn")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--expect", "nowhere.toml"), "--expect nowhere.toml: no such file or directory"),
        (("--expect", ""), "--expect '': it is empty"),
        (
            ("--only", "expect-ports"),
            "expect-ports compares with a file of what a node should have",
        ),
        (("--layer", "expected"), "expect-gpus compares with a file of what a node should have"),
        (("--learn", "--all"), "--learn does not read --all"),
        (
            ("--learn", "--hosts", "a,b"),
            "--learn does not read --hosts\n\nhint: ssh HOST busbw check --learn > node.toml, with a"
            " good node as HOST; then all: busbw check --hosts ... --expect node.toml",
        ),
        (("--learn", "--save", "{good}.new"), "--learn does not read --save"),
        (("--learn", "--watch-for", "1s"), "--learn does not read --watch-for"),
        (("--learn", "--since", "{good}"), "--learn does not read --since"),
        (("--learn", "--list"), "--learn does not read --list"),
        (("--learn", "--from", "{good}", "--from", "{good}"), "--learn reads one node, not 2"),
        (("--force",), "--force is for --save"),
        (("--accept-faults",), "--accept-faults is for --learn"),
        (
            ("--differences", "--expect", "{toml}", "--from", "{good}", "--from", "{good}"),
            "--differences has no line for a monitor, and compares with no file",
        ),
    ],
)
def test_options_that_do_not_go_together(words, message, snapshots, capfd):
    names = {"good": snapshots / "good.jsonl", "toml": snapshots / "node.toml"}
    code, _, err = run(capfd, *(word.format(**names) for word in words))
    assert code == 2 and message in err and "hint: " in err
