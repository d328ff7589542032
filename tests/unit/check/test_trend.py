"""Snapshots of several times: how the errors of links grew."""

import json
from pathlib import Path

import msgspec
import pytest
from tree import Tree

from busbw.check.trend import text as view
from busbw.check.trend.odd_links import CHECKS_OF_LINKS, check_of
from busbw.check.trend.report import trend
from busbw.cli.check import command
from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.gpu_health import GpuHealth, Nvlink, NvmlGpus


def machine(
    folder: Path,
    host: str,
    day: int,
    recoveries: dict[int, int],
    *,
    boot: str = "b1",
    ports: tuple[str, ...] = ("mlx5_0",),
    **counters: int,
) -> str:
    """The file of a snapshot of a host with one GPU of 18 links and ports; `recoveries` by link,
    `counters` of the first port, or the symbol errors of a port by its name.
    """
    links = tuple(
        Nvlink(number, active=True, errors={"recovery": recoveries.get(number, 0), "replay": 0})
        for number in range(18)
    )
    tree = (
        Tree()
        .file("/proc/sys/kernel/hostname", host)
        .file("/proc/sys/kernel/random/boot_id", boot)
        .call("time", f"2026-11-{day:02}T08:00:00+00:00")
        .call(
            "nvml_health",
            msgspec.json.encode(
                NvmlGpus(gpus=(GpuHealth(index=3, name="H100", links=links, pcie_replays=0),))
            ).decode(),
        )
    )
    for name in ports:
        own = {"symbol_error": str(counters.get(name, 0))} if len(ports) > 1 else {}
        own |= {key: str(value) for key, value in counters.items() if key not in ports}
        port = f"/sys/class/infiniband/{name}/ports/1"
        tree.files(port, link_layer="InfiniBand", state="4: ACTIVE")
        tree.files(f"{port}/counters", **own)
    path = folder / f"{host}-{day}.jsonl"
    lines = [
        {"schema": "busbw.host/1"},
        *({"path": path, **fields} for path, fields in tree.paths.items()),
    ]
    lines += [{"call": name, **fields} for name, fields in tree.calls.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_hosts_whose_counters_grew_alike_are_one_line(tmp_path):
    grew = {"h1": 10, "h2": 12, "h3": 14, "h4": 100, "h5": 0}
    files = [machine(tmp_path, host, 1, {}) for host in grew]
    files += [machine(tmp_path, host, 2, {2: by}) for host, by in grew.items()]
    report = trend(files)
    report.odd = []
    lines = view.text(report).partition("other counters that grew\n")[2].splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "h4 GPU 3 link 2 recovery 100 1 of 1",
        "h[1-3] GPU 3 link 2 recovery 10 to 14 1 of 1",
    ]


def test_the_link_that_differs_is_named(tmp_path):
    files = [machine(tmp_path, "h1", day, {14: 170 * (day - 1) + 7, 2: 1}) for day in (1, 2, 4)]
    files += [machine(tmp_path, "h2", day, {}) for day in (1, 4)]
    report = trend(files[::-1])
    (outlier,) = report.odd
    assert (
        outlier.growth.host,
        outlier.growth.link,
        outlier.growth.counter,
        outlier.growth.by,
    ) == ("h1", "GPU 3 link 14", "recovery", 510)
    assert (outlier.growth.hours, outlier.growth.grown, outlier.growth.periods, outlier.others) == (
        72.0,
        2,
        2,
        35,
    )
    assert report.links == {"NVLink": 36, "PCIe device": 2} and report.hours == 72
    text = view.text(report)
    assert (
        "h1 GPU 3 link 14 differs from the others: recovery grew by 510 in 72.0 h, none of the 35"
        " others did" in text
    )
    assert "in 2 of 2 periods; chance if all links were alike below 1e-12, limit 0.01" in text


RECOVERED = {14: 3}  # once is too often
ALL_LINKS = dict.fromkeys(range(18), 40)
FEW = {"symbol_error": 30}  # fewer than 120 an hour


@pytest.mark.parametrize(
    ("links", "counters", "checks"),
    [
        pytest.param({}, {}, [], id="nothing grew"),
        pytest.param(RECOVERED, {}, ["nvlink-errors"], id="too few to differ"),
        pytest.param({14: 505}, {}, ["nvlink-errors"], id="a link that differs"),
        pytest.param(ALL_LINKS, {}, ["nvlink-errors"], id="all links alike"),
        pytest.param({}, {"symbol_error": 60_000}, ["nic-symbol-errors"], id="too fast"),
        pytest.param({}, {"symbol_error": 65_535}, ["nic-symbol-errors"], id="saturated"),
        pytest.param({}, FEW, [], id="one port has no others to differ from"),
        pytest.param({}, {"link_downed": 40}, ["nic-flap"], id="down too often"),
        pytest.param({}, {"mlx5_1": 30}, ["nic-symbol-errors"], id="slow, but unlike the others"),
    ],
)
def test_trend_and_since_say_the_same_of_two_snapshots(links, counters, checks, tmp_path, capsys):
    ports = ("mlx5_0", "mlx5_1", "mlx5_2") if "mlx5_1" in counters else ("mlx5_0",)
    files = []
    for day in (1, 2):
        grown = {name: count * (day - 1) for name, count in counters.items()}
        errors = {link: count * (day - 1) for link, count in links.items()}
        files.append(machine(tmp_path, "h1", day, errors, ports=ports, **grown))
    report = trend(files)
    told = {check_of(outlier.growth) for outlier in report.odd}
    told |= {fault.id for fault in report.faults if fault.verdict in (Verdict.FAIL, Verdict.WARN)}
    words = ["check", "--from", files[1], "--since", files[0], "--format", "json"]
    guarded([*words, *(word for row_id in CHECKS_OF_LINKS for word in ("--only", row_id))])
    since = [
        finding
        for finding in json.loads(capsys.readouterr().out)["findings"]
        if finding["verdict"] in ("fail", "warn")
    ]
    assert {finding["name"] for finding in since} == set(checks)
    assert {finding["id"] for finding in since} == told
    assert bool(since) == any(
        verdict in (Verdict.FAIL, Verdict.WARN) for verdict in report.verdicts()
    )


def test_the_link_that_differs_most_is_first(tmp_path):
    files = [
        machine(tmp_path, "h1", day, {2: 170 * (day - 1), 14: 900 * (day - 1)}) for day in (1, 2)
    ]
    files += [machine(tmp_path, "h2", day, {}) for day in (1, 2)]
    assert [outlier.growth.link for outlier in trend(files).odd] == [
        "GPU 3 link 14",
        "GPU 3 link 2",
    ]


def test_earlier_counts_are_not_growth(tmp_path):
    report = trend([machine(tmp_path, "h1", day, {14: 505}) for day in (1, 2)])
    assert (report.odd, report.grown) == ([], [])
    assert "no error counter of a link grew" in view.text(report)


def test_after_a_reboot_all_of_a_count_is_new(tmp_path):
    report = trend(
        [machine(tmp_path, "h1", 1, {14: 300}), machine(tmp_path, "h1", 2, {14: 400}, boot="b2")]
    )
    assert [(growth.by, growth.at_least) for growth in report.grown] == [(400, True)]
    assert "at least 400" in view.text(report)


def test_a_counter_that_fell_was_reset(tmp_path):
    report = trend([machine(tmp_path, "h1", 1, {14: 300}), machine(tmp_path, "h1", 2, {14: 20})])
    assert [(growth.by, growth.at_least) for growth in report.grown] == [(20, True)]


def test_a_saturated_counter_may_have_grown_more(tmp_path):
    report = trend(
        [
            machine(tmp_path, "h1", 1, {}, link_downed=250),
            machine(tmp_path, "h1", 2, {}, link_downed=255),
        ]
    )
    assert [
        (growth.link, growth.counter, growth.by, growth.at_least) for growth in report.grown
    ] == [("mlx5_0", "link_downed", 5, True)]


def test_a_counter_that_stays_saturated_has_no_known_growth(tmp_path):
    report = trend([machine(tmp_path, "h1", day, {}, link_downed=255) for day in (1, 2)])
    assert report.grown == []


def test_a_counter_that_grew_in_one_of_two_periods(tmp_path):
    files = [
        machine(tmp_path, "h1", day, {}, link_downed=count)
        for day, count in ((1, 7), (2, 7), (3, 255))
    ]
    (growth,) = trend(files).grown
    assert (growth.by, growth.grown, growth.periods, growth.at_least, growth.hours) == (
        248,
        1,
        2,
        True,
        48.0,
    )


def test_hosts_with_one_snapshot_are_named(tmp_path):
    files = [machine(tmp_path, "h1", day, {}) for day in (1, 2)]
    report = trend([*files, machine(tmp_path, "h2", 1, {})])
    assert report.hosts == ["h1"] and report.reasons == {"h2": "only one snapshot"}
    assert "UNKNOWN h2: only one snapshot" in view.text(report)


def test_one_snapshot_of_each_host_cannot_be_compared(tmp_path):
    with pytest.raises(
        UsageError, match="no host has two snapshots of different times among 2 files"
    ):
        trend([machine(tmp_path, host, 1, {}) for host in ("h1", "h2")])


def test_no_counter_in_common_is_unknown(tmp_path):
    files = []
    for day in (1, 2):
        lines = [{"schema": "busbw.host/1"}, {"path": "/proc/sys/kernel/hostname", "text": "h1"}]
        lines.append({"call": "time", "text": f"2026-11-0{day}T08:00:00+00:00"})
        files.append(tmp_path / f"{day}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = trend([str(file) for file in files])
    assert report.links == {} and "UNKNOWN no error counter" in view.text(report)
    assert command.main(["trend", *map(str, files)], standalone_mode=False) == 3


def test_exit_code_and_json(tmp_path, capfd):
    files = [machine(tmp_path, "h1", day, {14: 505 * (day - 1)}) for day in (1, 2)]
    words = ["trend", *files, "--format", "json"]
    assert command.main([*words, "--fail-on", "warn"], standalone_mode=False) == 1
    capfd.readouterr()
    assert command.main(words, standalone_mode=False) == 0, "a link that differs is a warning"
    report = json.loads(capfd.readouterr().out)
    assert (
        report["schema"] == "busbw.trend/1"
        and report["odd"][0]["growth"]["link"] == "GPU 3 link 14"
    )


def test_a_file_that_is_not_a_snapshot_is_refused(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(UsageError, match="line 1"):
        trend([str(tmp_path / "x")])


def test_a_time_without_a_zone_is_utc(tmp_path):
    files = [machine(tmp_path, "h1", day, {14: day}) for day in (1, 2)]
    Path(files[0]).write_text(Path(files[0]).read_text().replace("+00:00", ""))
    assert trend(files).hours == 24
