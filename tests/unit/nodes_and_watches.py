"""Files of a watch and of several nodes, for reports."""

from pathlib import Path

import msgspec
from healthy import healthy

from busbw.check.snapshot import snapshot
from busbw.core.finding import Verdict
from busbw.core.link_samples import ETHERNET, ROCE, LinkFinding, LinkFlow, WatchInterval

NAME = "gpu000"  # of all nodes when they are recorded; each gets its own of the same length


def watched_lines(count: int = 60) -> bytes:
    """A minute of two ports, of which one loses packets at second 30 and is gone at second 40."""
    lines = []
    for second in range(count):
        lost = 5.0 if second == 30 else 0.0
        findings = []
        if lost:
            findings = [LinkFinding("mlx5_0", "loss", Verdict.WARN, "packets are lost", "5/s <b>")]
        port = LinkFlow(name="mlx5_0", kind=ROCE, rate=50e9, tx=second * 1e9, rx=1e9, lost=lost)
        port = msgspec.structs.replace(port, counters={"packet_seq_err": lost})
        if second == 40:
            port = LinkFlow(name="mlx5_0", kind=ROCE, state="gone")
        idle = LinkFlow(name="eth9", kind=ETHERNET, tx=0.0, rx=0.0)
        lines.append(
            WatchInterval(
                host="h1",
                at=f"2026-11-27T09:40:{second:02}.000+00:00",
                seconds=1.0,
                links=[port, idle],
                findings=findings,
                cpu=0.5,
            )
        )
    return b"\n".join(map(msgspec.json.encode, lines)) + b"\n"


def node_snapshots(folder: Path, count: int = 12) -> Path:
    """Snapshots of nodes of which the seventh has another kernel and the ninth a small MTU."""
    odd = {7: {"/proc/sys/kernel/osrelease": "6.8.0-<i>"}, 9: {"/sys/class/net/eth0/mtu": "1500"}}
    texts = {number: _snapshot(files) for number, files in ({0: {}} | odd).items()}
    for number in range(1, count + 1):
        name = f"gpu{number:03}"
        text = texts.get(number, texts[0]).replace(NAME, name)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def _snapshot(files: dict[str, str]) -> str:
    tree = healthy()
    tree.file("/proc/sys/kernel/hostname", NAME)
    tree.file("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {NAME}")
    for path, text in files.items():
        tree.file(path, text)
    return snapshot(tree.source())
