"""NCCL's cost model against what NCCL itself logged, against published figures, and as
properties.
"""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.collectives import BY_NAME, collective
from busbw.core.errors import UsageError
from busbw.core.pattern import PROTOCOLS
from busbw.model import topo_xml
from busbw.model.bounds import bounds
from busbw.model.nccl.choice import COLLECTIVES, AllowedAlgorithms, Parts, allowed, choices, parts
from busbw.model.nccl.constants import MODELLED, fitted_release, of_number, release, releases
from busbw.model.nccl.graphs import ChannelGraph
from busbw.model.predict import describe
from busbw.model.systems import System, parse_system, with_nics

GIB, MIB = 1 << 30, 1 << 20
WORDS = ("v100x16", "a100x8", "h800x8", "h100x8", "h100x4", "b200x8", "b300x8", "gb200nvl72")


def busbw(
    system: System,
    hosts: int,
    size: int,
    algorithm: str,
    version: str = "latest",
    name: str = "all_reduce",
) -> float:
    """GB/s of the faster protocol."""
    model = system.model(release(version), hosts, system.gpus)
    possible = [parts(model, name, size, algorithm, protocol) for protocol in PROTOCOLS]
    fastest_s = min(expected.time_s for expected in possible if expected)
    return float(BY_NAME[name].bus_factor(model.ranks)) * size / fastest_s / 1e9


def test_every_time_that_nccl_logged_on_8_h100(recorded: Path) -> None:
    with (recorded / "nccl_model" / "aibooster_pattern.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    model = parse_system("h100x8").model(release("2.22"), 1, 8)
    assert len(rows) == 18
    for row in rows:
        best = choices(model, collective(row["routine"]).name, int(row["TOTALBYTES"]))[0]
        assert (best.algorithm, best.protocol) == (row["ALGO"], row["PROTOCOL"])
        assert best.parts.time_s * 1e6 == pytest.approx(
            float(row["TIME_FOR_EACH_NCCL_COMM_CALL_MICROSEC"]), abs=1e-3
        )


def test_those_times_are_not_of_2_20(recorded: Path) -> None:
    model = parse_system("h100x8").model(release("2.20.3"), 1, 8)
    timed = parts(model, "all_gather", 768, "Ring", "LL")
    assert timed is not None
    assert timed.time_s * 1e6 != pytest.approx(10.804766, abs=1e-3)


def test_the_channels_that_nccl_logs_on_h100() -> None:
    one_host, two_hosts = (
        parse_system("h100x8").model(fitted_release(), hosts, 8) for hosts in (1, 2)
    )
    assert one_host.ring == ChannelGraph(12, 30, 30)  # NVIDIA/nccl issue 1197
    assert one_host.nvls == ChannelGraph(8, 40, 40)
    assert two_hosts.ring == ChannelGraph(8, 45, 45)
    assert two_hosts.nvls == ChannelGraph(8, 40, 48)
    a100 = parse_system("a100x8")
    assert a100.model(fitted_release(), 1, 8).ring == ChannelGraph(12, 20, 20)
    assert a100.model(fitted_release(), 2, 8).ring == ChannelGraph(
        8, 24, 24
    )  # 192 GB/s: NVIDIA/nccl issue 812


# busbw of all_reduce in GB/s on hosts of 8 H100 with 8 x 400 Gbit/s at 16 GiB, 1 GiB and 64 MiB,
# from an independent calculation.
TABLE = [
    (1, "NVLS", (476, 473, 432)),
    (2, "NVLSTree", (461, 455, 371)),
    (4, "NVLSTree", (364, 357, 279)),
    (16, "NVLSTree", (363, 352, 239)),
    (128, "NVLSTree", (363, 345, 196)),
    (512, "NVLSTree", (362, 341, 174)),
    (2048, "NVLSTree", (362, 336, 157)),
    (12500, "NVLSTree", (362, 332, 143)),
    (1, "Ring", (360, 356, 307)),
]


@pytest.mark.parametrize(("hosts", "algorithm", "expected"), TABLE)
def test_scaling_of_all_reduce(hosts: int, algorithm: str, expected: tuple[int, int, int]) -> None:
    busbws = [
        busbw(parse_system("h100x8"), hosts, size, algorithm) for size in (16 * GIB, GIB, 64 * MIB)
    ]
    assert busbws == pytest.approx(list(expected), abs=0.6)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [(2, (359, 349, 236)), (16, (354, 281, 65)), (128, (315, 110, 9.7)), (12500, (24, 2, 0.1))],
)
def test_scaling_of_a_ring_with_simple(hosts: int, expected: tuple[float, ...]) -> None:
    model = parse_system("h100x8").model(fitted_release(), hosts, 8)
    for size, value in zip((16 * GIB, GIB, 64 * MIB), expected, strict=True):
        timed = parts(model, "all_reduce", size, "Ring", "Simple")
        assert timed is not None
        busbw_rate = (
            float(BY_NAME["all_reduce"].bus_factor(model.ranks)) * size / timed.time_s / 1e9
        )
        assert busbw_rate == pytest.approx(value, abs=0.5 if value > 50 else 0.55)


# System, hosts, algorithm, release, published busbw of all_reduce at large sizes, and how far the
# model may be from it.
PUBLISHED = [
    ("h100x8", 1, "NVLS", "latest", 480, 0.01),  # GTC 2024 S62129
    ("h100x8", 1, "NVLS", "2.27", 480, 0.03),
    ("h100x8", 1, "Ring", "latest", 368.8, 0.03),  # NVIDIA/nccl-tests issue 309
    ("b200x8", 1, "NVLS", "latest", 840, 0.02),
    # NVIDIA/nccl issue 1374: the lists have no speed between 15 and 20
    ("h800x8", 1, "NVLS", "latest", 215, 0.18),
    ("a100x8", 2, "Ring", "latest", 192, 0.01),  # NVIDIA/nccl issue 812
]


@pytest.mark.parametrize(("word", "hosts", "algorithm", "version", "published", "error"), PUBLISHED)
def test_published_figures(
    word: str, hosts: int, algorithm: str, version: str, published: float, error: float
) -> None:
    busbw_rate = busbw(parse_system(word), hosts, 16 * GIB, algorithm, version)
    assert busbw_rate == pytest.approx(published, rel=error)


def test_248_hosts_of_h200() -> None:
    busbw_rate = busbw(parse_system("h200x8"), 248, 512 * MIB, "NVLSTree")
    assert busbw_rate == pytest.approx(328.6, abs=0.5)
    assert busbw_rate == pytest.approx(350, rel=0.07)  # NVIDIA/nccl-tests issue 283


def test_rings_over_1_to_128_hosts(recorded: Path) -> None:
    """SimAI's table of shares, which it uses for all_gather and reduce_scatter: of 450 GB/s on one
    host, of 8 x 48.5 GB/s on several.

    Where bytes take most of the time the model fits.
    """
    with (recorded / "nccl_model" / "simai_nic_ratio.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    near, latency_bound = [], []
    for row in rows:
        size = int(row.pop("bytes"))
        for hosts, share in ((int(key), float(value)) for key, value in row.items()):
            model = parse_system("h100x8").model(fitted_release(), hosts, 8)
            timed = [
                ring_parts
                for protocol in ("LL128", "Simple")
                if (ring_parts := parts(model, "all_gather", size, "Ring", protocol))
            ]
            best = min(timed, key=lambda candidate: candidate.time_s)
            expected = float(BY_NAME["all_gather"].bus_factor(model.ranks)) * size / best.time_s
            off = share * (450e9 if hosts == 1 else 8 * 48.5e9) / expected - 1
            waits = best.latency_s / best.time_s
            if waits < 0.3:
                near.append(off)
            elif waits > 0.5 and hosts > 2:
                latency_bound.append(off)
    assert (len(near), len(latency_bound)) == (59, 21)
    assert min(near) >= -0.26
    assert max(near) <= 0.14
    assert sorted(map(abs, near))[len(near) // 2] <= 0.06
    assert -0.61 <= min(latency_bound) <= max(latency_bound) <= -0.22


def timed(
    system: System, row: int, hosts: int, name: str, size: int, algorithm: str, protocol: str
) -> Parts | None:
    return parts(system.model(releases()[row], hosts, system.gpus), name, size, algorithm, protocol)


systems = st.sampled_from(WORDS).map(parse_system)
hosts_of = st.integers(1, 12500)


@settings(max_examples=300, deadline=None)
@given(
    systems,
    st.integers(0, len(releases()) - 1),
    hosts_of,
    st.sampled_from(COLLECTIVES),
    st.integers(1, 1 << 36),
    st.sampled_from(MODELLED),
    st.sampled_from(PROTOCOLS),
)
def test_the_rate_never_falls_with_size_but_for_corrections(
    system: System, row: int, hosts: int, name: str, size: int, algorithm: str, protocol: str
) -> None:
    smaller, larger = (
        timed(system, row, hosts, name, bytes_, algorithm, protocol) for bytes_ in (size, 2 * size)
    )
    assert (smaller is None) == (larger is None)
    if smaller is None or larger is None:
        return
    assert 0 <= smaller.latency_s <= larger.latency_s
    assert smaller.transfer_s > 0
    if algorithm not in ("Tree", "NVLSTree"):  # their rates change with size
        assert larger.transfer_s == pytest.approx(2 * smaller.transfer_s)
        assert smaller.time_s <= larger.time_s


@settings(max_examples=200, deadline=None)
@given(
    systems,
    hosts_of,
    st.integers(1, 16),
    st.sampled_from((25, 100, 200, 400, 800)),
    st.sampled_from(COLLECTIVES),
    st.integers(1, 1 << 36),
)
def test_a_ring_is_never_above_the_rate_of_the_links(
    system: System, hosts: int, nics: int, gbit: int, name: str, size: int
) -> None:
    system = with_nics(system, f"{nics}x{gbit}G")
    (limit,) = [
        bound
        for bound in bounds(BY_NAME[name], system.fabric(hosts, system.gpus), system.features())
        if bound.algorithm == "Ring"
    ]
    factor = float(BY_NAME[name].bus_factor(hosts * system.gpus))
    for table in releases():
        for protocol in PROTOCOLS:
            ring_parts = parts(
                system.model(table, hosts, system.gpus), name, size, "Ring", protocol
            )
            assert ring_parts is not None
            assert factor * size / ring_parts.time_s <= limit.busbw * (1 + 1e-9)


def test_every_release_is_found() -> None:
    last_of = {row.first[:2]: row for row in releases()}
    for row in releases():
        assert release(row.name) is (row if len(row.first) == 3 else last_of[row.first])
    assert release("2.28.3").first == (2, 28)
    assert release("2.27.7").first == (2, 23)
    assert of_number(22809).first == (2, 28, 9)
    assert of_number(22903).first == (2, 29)
    assert of_number(23007) is of_number(0) is fitted_release()
    assert of_number(2804).first == releases()[0].first
    for text in ("2", "2.x", "2.17", "two", "2.28.9.1", ""):
        with pytest.raises(UsageError):
            release(text)


@pytest.mark.parametrize("version", ["2.33", "2.33.1", "2.99", "3.0"])
def test_a_release_with_an_unknown_model_is_refused_but_its_runs_are_explained(
    version: str,
) -> None:
    with pytest.raises(UsageError, match=r"up to 2\.32") as error:
        release(version)
    assert error.value.hint == "--nccl 2.32"
    ran = of_number(23301)
    assert (ran.first, ran.hops) == (releases()[-1].first, releases()[-1].hops)
    assert "2.33.1, which ran" in ran.note
    described = describe(parse_system("h100x8"), 1, 8, ran, "run.json")
    assert described.notes == [ran.note]


# GB/s of all_reduce that NCCL expects on 4 x 8 B200 at 1 TiB, by the changed constants.
@pytest.mark.parametrize(
    ("version", "algorithm", "protocol", "limit"),
    [
        ("2.28.3", "NVLSTree", "Simple", 43.1 * 8),
        ("2.28.9", "NVLSTree", "Simple", 43.8 * 8),
        ("2.30.3", "NVLSTree", "Simple", 48 * 8),  # the NICs limit it
        ("2.29.2", "Ring", "LL128", 34.5 * 8),
        ("2.29.7", "Ring", "LL128", 40 * 8),
    ],
)
def test_releases_differ_on_blackwell(
    version: str, algorithm: str, protocol: str, limit: float
) -> None:
    model = parse_system("b200x8").model(release(version), 4, 8)
    timed = parts(model, "all_reduce", 1 << 40, algorithm, protocol)
    assert timed is not None
    rate = (1 << 40) / timed.transfer_s / 1e9
    assert rate * 62 / 32 == pytest.approx(limit, rel=0.02)


def rate_of(system: str, version: str, hosts: int, name: str, algorithm: str) -> float:
    described = parse_system(system)
    model = described.model(release(version), hosts, described.gpus)
    timed = parts(model, name, MIB, algorithm, "Simple")
    assert timed is not None
    return MIB / timed.transfer_s


def test_a_tree_on_two_hosts_has_the_slower_speed_of_both_from_2_31_on() -> None:
    speeds = [rate_of("gb200x4", version, 2, "all_reduce", "Tree") for version in ("2.30", "2.31")]
    assert speeds[1] < speeds[0]
    assert release("2.31.2").first == (2, 31) and release("latest") is releases()[-1]


def test_rings_inside_a_host_of_blackwell_have_a_plateau_from_2_32_on() -> None:
    """1.4 from 64 bytes for each rank and channel on, 1.3 from 512 KiB on, with many steps."""
    for system, size, factor in (
        ("b200x8", 64 * MIB, 1.4),
        ("b200x8", 16 << 30, 1.3),
        ("b200x8", 4 << 10, 1.0),
        ("h100x8", 64 * MIB, 1.0),
    ):
        described = parse_system(system)
        before, after = (
            parts(described.model(release(version), 1, 8), "all_reduce", size, "Ring", "Simple")
            for version in ("2.30", "2.32")
        )
        assert before is not None and after is not None
        assert after.latency_s == pytest.approx(factor * before.latency_s, rel=1e-3), (system, size)


def test_settings_leave_what_nccl_would_leave() -> None:
    assert allowed({"NCCL_ALGO": "Ring"}, "all_reduce").algorithms == ("Ring",)
    assert allowed({"NCCL_ALGO": "^ring,tree"}, "all_reduce").algorithms == (
        "NVLS",
        "NVLSTree",
        "PAT",
    )
    assert allowed({"NCCL_ALGO": "ring;allreduce:tree"}, "all_reduce").algorithms == ("Tree",)
    assert allowed({"NCCL_ALGO": "allgather:ring"}, "all_reduce") == AllowedAlgorithms()
    assert allowed({"NCCL_NVLS_ENABLE": "0"}, "all_reduce").algorithms == ("Tree", "Ring", "PAT")
    assert allowed({"NCCL_PROTO": "^LL128"}, "all_reduce").protocols == ("LL", "Simple")
    assert allowed({"NCCL_PROTO": "nonsense"}, "all_reduce").protocols == PROTOCOLS


def test_without_a_model_no_choice_is_made() -> None:
    model = parse_system("h100x8").model(fitted_release(), 2, 8)
    assert choices(model, "alltoall", MIB) == []


def logged(path: Path) -> dict[tuple[str, str, str], tuple[float, float]]:
    """The values of NCCL's table of latency and algbw, by collective, algorithm and protocol."""
    times_by_key: dict[tuple[str, str, str], tuple[float, float]] = {}
    algorithms: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        title, *cells = [cell.strip() for cell in line.removeprefix("NCCL INFO").split("|")]
        if title == "Algorithm":
            algorithms = [name for cell in cells for name in cell.split()]
        elif any("/" in cell for cell in cells):
            pairs = [
                tuple(float(part) for part in cell.split("/")) for cell in cells if "/" in cell
            ]
            for at, (latency, rate) in enumerate(pairs):
                times_by_key[collective(title).name, algorithms[at // 3], PROTOCOLS[at % 3]] = (
                    latency,
                    rate,
                )
    return times_by_key


@pytest.mark.parametrize(
    ("name", "hosts", "per_host", "entries"), [("one_host", 1, 2, 18), ("two_hosts", 2, 1, 14)]
)
def test_the_table_that_nccl_prints(
    recorded: Path, name: str, hosts: int, per_host: int, entries: int
) -> None:
    """Latency and rate of every combination that NCCL 2.28.9 would use on two H100, and none
    besides.
    """
    system = topo_xml.read((recorded / "nccl_model/topo_2xh100.xml").read_bytes(), "topo.xml")
    model = system.model(release("2.28.9"), hosts, per_host)
    may = AllowedAlgorithms(algorithms=("Tree", "Ring", "PAT"))
    table = {
        key: value
        for key, value in logged(recorded / f"nccl_model/tuning_{name}.log").items()
        if value[1] > 0
    }
    assert len(table) == entries
    large = 1 << 40  # beyond Tree's corrections by size
    predicted = {
        (name, choice.algorithm, choice.protocol): choice.parts
        for name in COLLECTIVES
        for choice in choices(model, name, large, may)
    }
    assert predicted.keys() == table.keys()
    for key, (latency, rate) in table.items():
        # added when a size is asked for
        plateau = 1.4 if key == ("all_reduce", "Ring", "Simple") and hosts > 1 else 1.0
        assert predicted[key].latency_s * 1e6 == pytest.approx(latency * plateau, abs=0.08)
        assert large / predicted[key].transfer_s / 1e9 == pytest.approx(rate, abs=0.051)


def test_the_channels_that_nccl_found_on_two_h100(recorded: Path) -> None:
    system = topo_xml.read((recorded / "nccl_model/topo_2xh100.xml").read_bytes(), "topo.xml")
    assert (system.gpus, system.nics, system.near, system.cpu) == (2, 1, False, "intel")
    one_host, two_hosts = system.model(fitted_release(), 1, 2), system.model(fitted_release(), 2, 1)
    assert (one_host.ring, one_host.tree) == (ChannelGraph(12, 30, 30), ChannelGraph(12, 60, 60))
    assert (two_hosts.ring, two_hosts.tree) == (
        ChannelGraph(1, 1.2, 1.2),
        ChannelGraph(1, 2.4, 1.2),
    )


def test_a_tree_over_nvls_needs_several_hosts() -> None:
    one_host, two_hosts = (
        parse_system("h100x8").model(fitted_release(), hosts, 8) for hosts in (1, 2)
    )
    assert parts(one_host, "all_reduce", GIB, "NVLSTree", "Simple") is None
    assert parts(two_hosts, "all_reduce", GIB, "NVLSTree", "Simple") is not None


def test_nvls_gathers_at_the_rate_of_the_other_gpus() -> None:
    """Releases with PAT and before NVLS' efficiency: 8 channels of 40 GB/s, of which 7/8 come
    from others (tuning.cc of 2.23).
    """
    old = parse_system("h100x8").model(release("2.23"), 1, 8)
    assert old.release.pat and old.release.nvls_efficiency is None
    timed = parts(old, "all_gather", 64 * GIB, "NVLS", "Simple")
    assert timed is not None and 64 * GIB / timed.time_s / 1e9 == pytest.approx(
        8 * 40 * 7 / 8, rel=1e-3
    )


# Latency in us of all_reduce on 2 x 8 H100 without the network's, and how often that one is added.
@pytest.mark.parametrize(
    ("algorithm", "protocol", "times"),
    [("Ring", "LL", 2), ("Ring", "Simple", 4), ("Tree", "LL128", 2), ("NVLSTree", "Simple", 4)],
)
def test_each_hop_between_hosts_adds_the_networks_latency(
    algorithm: str, protocol: str, times: int
) -> None:
    near = parse_system("h100x8").model(fitted_release(), 2, 8)
    far = replace(near, net_latency_us=75.0)
    added = []
    for model in (near, far):
        timed = parts(model, "all_reduce", 64, algorithm, protocol)
        assert timed is not None
        added.append(timed.latency_s * 1e6)
    assert added[1] - added[0] == pytest.approx(75 * times)
