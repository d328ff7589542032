"""`busbw run alltoallv --counts` with real ranks: right data, the table's header, and the
finding on the busiest rank.
"""

import json
import shlex

import pytest

pytestmark = pytest.mark.usefixtures("ranks_are_forks")


def test_a_skewed_exchange_names_the_busiest_rank_and_when_each_ended(here, tmp_path):
    (tmp_path / "counts.csv").write_text("0,1,0,0\n1,0,0,0\n0,1,0,40\n0,0,1,0\n")
    words = shlex.split("alltoallv --engine mpi -np 4 -b 656K -e 656K --iters 10")
    done = here("busbw", "run", *words, "--counts", "file:counts.csv", "--json", "r.json")
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].startswith("656 KiB, counts file:counts.csv, matrix sha256:")
    assert "PASS    no wrong element in 1 check" in done.out
    assert (
        "sends 656 KiB to the others, 3.73 times the mean of all ranks, and receives 16 KiB: spread"
        " evenly" in done.out
    )
    assert (
        "hottest pair at 656 KiB: rank 2 to rank 3, 640 KiB, 10.91 times the mean of all pairs; at"
        " 656 KiB" in done.out
    )
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["traffic"]["rank"], result["rows"][0]["count"]) == (2, 0)
    ends = result["rows"][0]["out_of_place"]["ends_s"]
    assert f"rank {ends.index(max(ends))} ends last, after " in done.out
    # Which rank that is depends on the scheduler where ranks share cores.
    assert (
        len(ends) == 4 and 0 < min(ends) <= max(ends) <= result["rows"][0]["out_of_place"]["time_s"]
    )


def test_a_power_law_moves_right_data_and_is_in_the_result(here, tmp_path):
    words = shlex.split("alltoallv --engine mpi -np 3 -b 1K -e 64K -f 8 --iters 5 --json r.json")
    done = here("busbw", "run", *words, "--counts", "zipf:1.05,rows=1e6,ids=4096,dedup")
    assert done.code == 0, done.err
    counts = "counts zipf:1.05,rows=1000000,ids=4096,dedup,seed=1"
    assert (
        done.out.splitlines()[1]
        == f"1 KiB to 64 KiB, factor 8, {counts}, float, 5 iterations, 99 % intervals; busbw ="
        " (n-1)/n x algbw"
    )
    assert done.err.startswith("note: a batch of 4096 ids asks for 2089 different rows\n")
    assert "PASS    no wrong element in 3 checks" in done.out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["spec"]["counts"] == "zipf:1.05,rows=1e6,ids=4096,dedup"
    assert f"counts {result['traffic']['source']}" == counts
    assert [row["size_bytes"] for row in result["rows"]] == [1008, 8160, 65520]


def test_wrong_counts_are_refused_with_a_hint(here, tmp_path):
    (tmp_path / "counts.csv").write_text("0 1\n1 x\n")
    done = here(
        "busbw",
        "run",
        "alltoallv",
        "--engine",
        "mpi",
        "-np",
        "2",
        "-e",
        "1K",
        "--counts",
        "counts.csv",
    )
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: counts.csv: row of rank 1: 'x' is not a number of bytes\n\nhint: "
    )
