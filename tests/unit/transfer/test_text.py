"""What `busbw show` prints of benchmarks of transfers."""

import json
from pathlib import Path

import pytest
from transfer_outputs import configuration, nixlbench, row, table

from busbw.api import files
from busbw.api.shown import line
from busbw.cli.main import guarded
from busbw.transfer import nixlbench as reader
from busbw.transfer import text
from busbw.transfer.types import TransferReport

SHOWN = """\
# nixlbench, UCX: WRITE from VRAM to VRAM memory, pairwise SG, 4 threads, 2
  requests in flight, NICs mlx5_0, mlx5_1
 block  batch   GB/s  time per block   request      99 %
 4 KiB      8   5.75          2.8 us   22.0 us   26.4 us
 1 MiB      8  45.72         91.7 us  733.1 us  879.7 us
16 MiB      8  46.92        1.430 ms  11.44 ms  13.73 ms

# time per block: the whole time of a thread, with preparing and posting its
  requests, over all their blocks
# request: from the return of its post to its end, mean; 99 %: what 99 % of
  requests take at most
WARN    1 table did not end: these are the rows so far  [transfer.end]
PASS    at the plateau: the rate hardly grows any more at 8 x 16 MiB
        [transfer.plateau]
        evidence: 45.72 GB/s at 8 x 1 MiB, 46.92 GB/s at 8 x 16 MiB
UNKNOWN not compared with a NIC: the output names mlx5_0, mlx5_1, but no rate of
        a NIC  [transfer.nic]
        fix: busbw show FILE --system p5.48xlarge, or another system, such as
          h100x8
"""


@pytest.fixture
def shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    """`shown(output, *options)` is what `busbw show` prints of it in 80 columns, and exits with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(output: str, *options: str) -> tuple[str, str, int]:
        (tmp_path / "bench.txt").write_text(output)
        code = guarded(("show", "bench.txt", *options))
        captured = capsys.readouterr()
        return captured.out, captured.err, code

    return run


def output() -> str:
    blocks = [4096, 1 << 20, 1 << 24]
    options = {"device_list": "mlx5_0,mlx5_1", "pipeline_depth": 2}
    return nixlbench(20, 47, batch=8, threads=4, blocks=blocks, **options)


def test_a_table_and_findings_in_80_columns(shown) -> None:
    printed, _, code = shown(output())
    assert (printed, code) == (SHOWN, 0)


def test_no_line_is_longer_than_asked_for() -> None:
    report = files.content(output().encode(), "bench.txt")
    for width in (60, 80):
        assert max(map(len, text.render(report.held, width).splitlines())) <= width


def test_rates_of_all_pairs_are_a_column() -> None:
    head = (
        "Block Size (B)  Batch Size  B/W (GB/Sec)  Aggregate B/W (GB/Sec)  Network Util (%)"
        "  Avg Lat. (us)\n"
    )
    report = reader.read(f"{configuration()}{head}65536 16 40.0 320.0 80.0 1.6\n")
    assert "GB/s  all pairs (GB/s)" in text.render(report)
    assert "40.00            320.00" in text.render(report)


def test_storage_has_memory_on_one_side() -> None:
    report = reader.read(configuration(backend="GDS") + table([row(4096, 1, 1.0, 4.1, 3.3)]))
    printed = text.render(report)
    assert "# nixlbench, GDS: WRITE between VRAM memory and storage, pairwise SG" in printed


def test_system_compares_with_its_nics(shown) -> None:
    printed, _, code = shown(output(), "--system", "h100x8")
    assert "WARN    46.92 GB/s is 48 % of what 2 NICs of h100x8 can carry" in printed
    assert code == 0


def test_system_is_refused_for_another_file(shown) -> None:
    _, errors, code = shown(
        "busbw-tuner-table 1\n4 * all_reduce 1 2 Ring LL 8\n", "--system", "h100x8"
    )
    assert code == 2
    assert "--system h100x8: bench.txt is no output of nixlbench or ucx_perftest" in errors
    _, errors, code = shown(output(), "--system", "h999x8")
    assert (code, "--system" in errors) == (2, True)


def test_json_is_shown_again_alike(shown, tmp_path: Path) -> None:
    printed, _, _ = shown(output(), "--format", "json", "--system", "h100x8")
    kept = json.loads(printed)
    assert (kept["schema"], kept["system"], len(kept["rows"])) == ("busbw.transfers/1", "h100x8", 3)
    assert shown(printed)[0] == shown(output(), "--system", "h100x8")[0]
    assert (
        shown(printed, "--system", "p5.48xlarge")[0]
        == shown(output(), "--system", "p5.48xlarge")[0]
    )
    broken = printed.replace('"run": 0', '"run": 7', 1)
    assert broken != printed
    assert shown(broken)[2] == 2


def test_sweeps_are_not_asked_for(shown) -> None:
    _, errors, code = shown(output(), "--format", "csv")
    assert (code, "benchmark of transfers, but 'csv' shows sweeps" in errors) == (2, True)


@pytest.mark.parametrize("command", [("compare",), ("explain",)])
def test_other_commands_say_what_it_is(command, tmp_path: Path, capsys) -> None:
    path = tmp_path / "bench.txt"
    path.write_text(output())
    assert guarded((*command, str(path), *([str(path)] if command[0] == "compare" else []))) == 2
    assert "benchmark of transfers" in capsys.readouterr().err


def test_a_report_has_its_text_and_its_findings(tmp_path: Path) -> None:
    (tmp_path / "bench.txt").write_text(output())
    page = tmp_path / "page.html"
    assert guarded(("report", str(tmp_path / "bench.txt"), "--output", str(page))) == 0
    content = page.read_text()
    assert "Benchmark of transfers" in content
    assert "1 table did not end" in content


def test_a_report_is_compared_with_the_nics_of_a_system(tmp_path: Path, capsys) -> None:
    bench, page = tmp_path / "bench.txt", tmp_path / "page.html"
    bench.write_text(output())
    arguments = ("report", str(bench), "--system", "h100x8", "--output", str(page))
    assert guarded(arguments) == 0
    assert "46.92 GB/s is 48 % of what 2 NICs of h100x8 can carry" in page.read_text()
    assert "not compared with a NIC" not in page.read_text()
    bench.write_text("busbw-tuner-table 1\n4 * all_reduce 1 2 Ring LL 8\n")
    assert guarded(arguments) == 2
    assert "is no output of nixlbench or ucx_perftest" in capsys.readouterr().err


def test_two_outputs_are_shown_one_at_a_time(shown, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(output())
    _, errors, code = shown(output(), "other.txt")
    assert code == 2
    assert "error: bench.txt: benchmark of transfers, and 2 files are given" in errors
    assert "all on one page: busbw report bench.txt other.txt" in errors


def test_in_python_it_has_rows_and_a_line(tmp_path: Path) -> None:
    (tmp_path / "bench.txt").write_text(output())
    report = files.load(tmp_path / "bench.txt")
    assert isinstance(report, TransferReport)
    assert [each["size_bytes"] for each in report.records()] == [4096, 1 << 20, 1 << 24]
    assert line(report).endswith("mlx5_1: up to 46.92 GB/s, at 16 MiB>")
    assert "46.92" in report._repr_html_()
