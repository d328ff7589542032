"""Horovod's own tests of its PyTorch API, run against busbw's: `python tools/horovod_suite.py
--path CLONE [-np 2] [PYTEST ARGUMENTS]`.

CLONE is a checkout of Horovod, whose test/parallel/test_torch.py is run by every rank as it is;
nothing of it is built. Says what passed, failed and was skipped, and where ranks disagree. Exit
code 0 where nothing failed. What the file imports besides: cloudpickle and mock.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_S = 900
PLUGIN = "horovod_plugin"


def outcomes(report: Path) -> dict[str, str]:
    """Of each test in a rank's report: passed, failed or skipped."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = case.find("failure") is not None or case.find("error") is not None
        found[str(case.get("name"))] = (
            "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        )
    return found


def command(file: Path, folder: Path, ranks: int, more: list[str]) -> list[str]:
    """What starts a pytest on every rank; each writes a report of its own."""
    rank = '"$OMPI_COMM_WORLD_RANK"'
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        PLUGIN,
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        str(file),
        *more,
    ]
    # As Horovod's own launcher has them where it starts ranks without MPI: tests that need that
    # look for them.
    places = " ".join(
        f'HOROVOD_{name}="$OMPI_COMM_WORLD_{name}"'
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    )
    line = " ".join(
        [
            places,
            "HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1",
            sys.executable,
            *(f"'{word}'" for word in words),
            f"--junitxml={folder}/rank.{rank}.xml",
        ]
    )
    return [sys.executable, "-m", "busbw", "horovodrun", "-np", str(ranks), "sh", "-c", line]


def main() -> int:
    """Run, hold the ranks' reports against each other, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--path", type=Path, required=True, metavar="CLONE", help="a checkout of Horovod"
    )
    parser.add_argument("-np", dest="ranks", type=int, default=2, help="ranks (default 2)")
    asked, more = parser.parse_known_args()
    file = asked.path.resolve() / "test" / "parallel" / "test_torch.py"
    if not file.is_file():
        parser.error(f"{file}: no such file: --path names a checkout of Horovod")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [
            str(HERE),
            str(asked.path.resolve() / "test" / "utils"),
            os.environ.get("PYTHONPATH", ""),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        try:
            done = subprocess.run(
                command(file, folder, asked.ranks, more),
                env=environment,
                timeout=LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            print(f"error: the tests did not end within {LIMIT_S} s", file=sys.stderr)
            return 3
        reports = [outcomes(report) for report in sorted(folder.glob("rank.*.xml"))]
    if len(reports) != asked.ranks:
        print(
            f"error: {len(reports)} of {asked.ranks} ranks came to an end (exit code {done})",
            file=sys.stderr,
        )
        return 3
    return told(reports)


def told(reports: list[dict[str, str]]) -> int:
    """Print the sums; a test has passed where it did on every rank."""
    every = {test: {report.get(test, "not run") for report in reports} for test in reports[0]}
    whole = {
        test: (
            "failed"
            if said - {"passed", "skipped"}
            else "passed"
            if said == {"passed"}
            else "skipped"
        )
        for test, said in every.items()
    }
    for test in sorted(test for test, said in whole.items() if said == "failed"):
        print(
            f"failed: {test} ({', '.join(report.get(test, 'not run') for report in reports)} by"
            " rank)"
        )
    counts = Counter(whole.values())
    print(
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped, on"
        f" {len(reports)} ranks"
    )
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
