"""What a watch saw of GPUs while a sweep ran: the largest rates of each link, and the bytes of each
size over the least.

python3 benchmarks/watch_2xh100.py watch.jsonl run.json
"""

import json
import sys
from pathlib import Path

from busbw.core.result import Result
from busbw.measure.link_traffic import loads
from busbw.report.read import read


def main(lines: str, file: str) -> int:
    """Print both; 1 if a size has no bytes of NVLink, or over 1 % fewer than the operations
    need.
    """
    watched = [json.loads(line) for line in Path(lines).read_text(encoding="utf-8").splitlines()]
    links = {
        link["name"]: link
        for one in watched
        for link in one["links"]
        if link["kind"] in ("nvlink", "pcie")
    }
    print(f"{len(watched)} samples, {sum(one.get('missed', 0) for one in watched)} missed")
    for name, link in links.items():
        seen = [one for sample in watched for one in sample["links"] if one["name"] == name]
        most = ", ".join(
            f"{way} {max((one.get(way) or 0) for one in seen) / 1e9:.1f}" for way in ("tx", "rx")
        )
        print(f"{name}: at most {most} GB/s of {(link.get('rate') or 0) / 1e9:.1f}")
    result = read(Path(file).read_bytes(), file)
    assert isinstance(result, Result)
    found = [
        load
        for load in loads(result)
        if load.kind == "nvlink" and load.least and load.all.sent is not None
    ]
    for load in found:
        print(
            f"{load.row.size_bytes:>11,} B: sent {load.all.sent:,} B of NVLink,"
            f" {(load.all.sent or 0) / (load.least or 1):.3f} of the least"
        )
    return int(
        len(found) != len(result.rows)
        or any((load.all.sent or 0) < 0.99 * (load.least or 0) for load in found)
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
