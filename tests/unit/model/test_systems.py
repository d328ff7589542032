"""Systems in words, and the topology that NCCL writes."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.topology import Gpu, Host
from busbw.model import topo_xml
from busbw.model.clouds import instances
from busbw.model.gpu_hosts import gpu_hosts
from busbw.model.measured_system import of_host
from busbw.model.nccl.constants import fitted_release
from busbw.model.networks import parse_network
from busbw.model.predict import check
from busbw.model.systems import of_device, of_gpus, parse_system, with_assumed_network, with_nics

GPU = (
    '<pci busid="0000:{at:02x}:00.0" class="0x030200" link_speed="{speed}" link_width="16"><gpu'
    ' dev="{at}" sm="{sm}">{link}</gpu></pci>'
)
NVLINK = '<nvlink target="0000:c{n}:00.0" count="{count}" tclass="{kind}"/>'
NET = (
    '<pci busid="0000:e{at}:00.0" class="0x020700"><nic><net name="mlx5_{at}" dev="{at}"'
    ' speed="{speed}" port="1"/></nic></pci>'
)


def document(
    gpus: int = 8,
    links: int = 18,
    sm: int = 90,
    nets: int = 8,
    kind: str = "0x068000",
    speed: str = "32.0 GT/s PCIe",
) -> bytes:
    """A topology as NCCL dumps it; NVLinks go to two switches."""
    halves = (
        "".join(NVLINK.format(n=n, count=links // 2, kind=kind) for n in (0, 1)) if links else ""
    )
    parts = [GPU.format(at=at, sm=sm, link=halves, speed=speed) for at in range(gpus)] + [
        NET.format(at=at, speed=400000) for at in range(nets)
    ]
    cpu = f'<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">{"".join(parts)}</cpu>'
    return f'<?xml version="1.0"?>\n<system version="1">{cpu}</system>\n'.encode()


def test_a_described_system_is_the_one_that_was_read() -> None:
    read, described = topo_xml.read(document(), "topo.xml"), parse_system("h100x8")
    for field in (
        "gpus",
        "sm",
        "link",
        "planned",
        "pcie",
        "pcie_planned",
        "nics",
        "nic",
        "nvls",
        "over_nvlink",
    ):
        assert getattr(read, field) == pytest.approx(getattr(described, field)), field
    assert (read.cpu, described.cpu) == ("amd", "intel")


def test_links_that_are_down_count() -> None:
    assert topo_xml.read(document(links=16), "topo.xml").planned == pytest.approx(16 * 20.6e9)


def test_gpus_without_nvlink() -> None:
    bare = topo_xml.read(document(links=0, sm=89, nets=1, speed="16.0 GT/s PCIe"), "topo.xml")
    assert (bare.over_nvlink, bare.nvls, bare.planned) == (False, False, 24e9)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (b'speed="200000"', "the rates of its NICs differ: 7 x 400, 1 x 200 Gbit/s"),
        (b'speed="400000000"', "NIC mlx5_0 400 Tbit/s"),
        (b'speed="4000000000000"', "NIC mlx5_0 4e.06 Tbit/s"),
    ],
)
def test_several_hosts_need_nics_whose_rate_is_known(rate: bytes, message: str) -> None:
    system = topo_xml.read(document().replace(b'speed="400000"', rate, 1), "topo.xml")
    check(system, 1, 8)
    with pytest.raises(UsageError, match=message) as caught:
        check(system, 2, 8)
    assert "--nics" in caught.value.hint
    check(with_nics(system, "8x400G"), 2, 8)


def test_a_nic_is_no_faster_than_its_slot() -> None:
    slot = b'busid="0000:e3:00.0" link_speed="16.0 GT/s PCIe" link_width="8"'
    data = document().replace(b'busid="0000:e3:00.0"', slot)
    system = topo_xml.read(data, "topo.xml")
    assert system.nic == 15.75e9
    assert system.payload_nic == pytest.approx(15.75e9 * 55.4 / 63)
    assert system.planned_rail(8) == pytest.approx(12e9)
    assert system.notes_on(1) == []
    (note,) = system.notes_on(2)
    assert note.startswith("PCIe 4 x8 limits mlx5_3 to 15.75 of 50 GB/s; all NICs count")
    given = with_nics(system, "8x400G")
    assert (given.nic, given.nic_over_pcie, given.notes_on(2)) == (50e9, False, [])
    more = b'<net name="b" speed="400000"/><net name="mlx5_3"'
    two_ports = data.replace(b'<net name="mlx5_3"', more)
    assert topo_xml.read(two_ports, "topo.xml").nic == 15.75e9 / 2
    hidden = data.replace(b"32.0 GT/s", b"16.0 GT/s")  # a virtual machine's
    assert topo_xml.read(hidden, "topo.xml").nic == 50e9


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not XML"),
        (b'\n<?xml version="1.0"?>\n<system>', "not XML: line 3: no element found"),
        (b"<graphs/>", "not <system>"),
        (b"<system/>", "no <gpu>"),
        (b'<!DOCTYPE s [<!ENTITY a "b">]><system>&a;</system>', "entities"),
        (b"<!DOCTYPE system><system/>", "document types"),
        (b"<a>" * 70, "too deep"),
        (
            document().replace(b'sm="90"', b'sm="80"', 1),
            "differ: 0000:00:00.0 has compute capability 8, 7 others have compute capability 9",
        ),
        (
            document().replace(b'count="9"', b'count="8"', 1),
            "differ: 0000:00:00.0 has 17 NVLinks, 7 others have 18 NVLinks",
        ),
        (
            document().replace(b'width="16"', b'width="8"', 6),
            r"0000:06:00\.0, 0000:07:00\.0 have PCIe 5 x16, 6 others have PCIe 5 x8",
        ),
        (
            document().replace(b"</cpu>", b'</cpu><cpu host_hash="0x1"/><cpu host_hash="0x2"/>'),
            "2 hosts in one NVLink domain",
        ),
        (document(sm=75), "table"),
        (b"\x00\xff" * 40, "not XML"),
        (b"x" * (17 << 20), "more than"),
    ],
)
def test_other_documents_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        topo_xml.read(data, "topo.xml")


@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda at, new: document()[:at] + new + document()[at:],
            st.integers(0, 3000),
            st.binary(max_size=8),
        ),
    )
)
def test_broken_documents_give_a_system_or_an_error(data: bytes) -> None:
    try:
        assert topo_xml.read(data, "topo.xml").gpus > 0
    except UsageError as error:
        assert error.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h100",
        "h100x0",
        "h100x9999",
        "x8",
        "h100x8x8",
        "p3x8",
        "a6000x2",
        "h100 x 8",
        "h１００x8",
    ],
)
def test_invalid_systems_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_system(text)
    assert "--system" in error.value.message


@pytest.mark.parametrize(
    "text",
    ["", "8x", "x400", "8x0G", "0x400G", "eight", "8x400T", "8*400G", "-8x400G", "25", "1x25"],
)
def test_invalid_nics_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"^--nics {re.escape(text)}: ") as refused:
        with_nics(parse_system("h100x8"), text)
    assert refused.value.hint.endswith("like --nics 8x400G")


@pytest.mark.parametrize(
    ("text", "count", "rate"),
    [("8x400G", 8, 50e9), ("400G", 1, 50e9), ("2 x 25G", 2, 3.125e9), ("4x200gbit/s", 4, 25e9)],
)
def test_nics(text: str, count: int, rate: float) -> None:
    system = with_nics(parse_system("h100x8"), text)
    assert (system.nics, system.nic) == (count, rate)


def test_every_usual_system_can_be_named() -> None:
    for row in gpu_hosts().values():
        assert parse_system(row.example).gpus == row.most
        assert parse_system(f"{row.word}x1").nics == (row.nics or bool(row.gbit))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("h200nvl4", "within a host, not in a rack", "--system h200nvlx4"),
        ("b200nvl72", "within a host, not in a rack", "--system b200x8"),
        ("gb200nvl576", "an NVLink domain has at most 72 GB200", "--system gb200nvl72"),
        ("h100x1024", "a host has at most 8 H100", "--system h100x8, and --nodes"),
        ("h100x0", "a host has at most 8 H100", "--system h100x8"),
        ("gb10x2", "a host has one GB10", "--system gb10x1"),
        ("v100x8", "a mesh of NVLinks", "--system v100x16"),
        ("vr200nvl72", "NVLink 6 of 3.6 TB/s", "--system gb300nvl72"),
    ],
)
def test_systems_that_do_not_exist_are_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_system(text)
    assert hint in error.value.hint


@pytest.mark.parametrize("text", ["h100x4", "a100x16", "gb200nvl36", "gb300x4", "v100x16"])
def test_fewer_gpus_than_a_board_are_a_system(text: str) -> None:
    assert parse_system(text).over_nvlink


def test_gpus_without_nvlink_reach_each_other_over_pcie() -> None:
    two, eight = parse_system("l40sx2"), parse_system("l40sx8")
    assert (two.over_nvlink, two.nvls, two.link, two.planned) == (False, False, 31.5e9, 24e9)
    assert not two.notes_on(1)
    assert "GPUs share switches, CPUs" in eight.notes_on(1)[0]
    assert parse_system("rtxpro6000x8").planned == 48e9
    assert eight.nics == 0  # there is no usual one


@pytest.mark.parametrize("word", gpu_hosts())
def test_a_device_that_a_log_names_has_the_slots_of_such_a_host(word: str) -> None:
    device, host = of_device(f"NVIDIA {word.upper()}", 1), parse_system(f"{word}x1")
    assert device is None or (device.pcie, device.sm) == (host.pcie, host.sm)


def test_a_gb10_has_the_lanes_of_its_nics() -> None:
    spark = parse_system("gb10x1")
    assert (spark.nics, spark.nic, spark.cpu) == (1, 25e9, "arm")
    ring = spark.model(fitted_release(), 2, 1).ring
    assert ring.channels * ring.inter == 24


def test_every_instance_is_a_system_with_its_network() -> None:
    for row in instances().values():
        system = parse_system(row.name.upper())
        assert (system.name, system.gpus, system.nics) == (row.name, row.gpus, row.nics)
        assert system.network is not None and system.network.name == row.network
    with pytest.raises(UsageError) as error:
        parse_system("p5.48xlarg")
    assert error.value.hint.startswith("did you mean p5.48xlarge?")
    assert parse_system("Standard_ND96isr_H100_v5").name == "nd96isr_h100_v5"


@pytest.mark.parametrize(
    ("system", "nics", "network"),
    [
        ("h100x8", "32x100G", "efav2"),
        ("h200x8", "16x200G", "efav3"),
        ("a100x8", "4x100G", "efav1"),
        ("h100x8", "16x200G", None),  # OCI has them too
        ("h100x4", "32x100G", None),
        ("b200x8", "8x400G", None),
    ],
)
def test_nics_of_one_cloud_alone_tell_the_network(
    system: str, nics: str, network: str | None
) -> None:
    assumed = with_assumed_network(with_nics(parse_system(system), nics))
    assert (assumed.network.name if assumed.network else None) == network
    assert any("is taken to be" in line for line in assumed.notes_on(2)) == (network is not None)
    assert assumed.notes_on(1) == []


def test_a_given_network_is_not_replaced() -> None:
    given_network = replace(parse_system("h100x8"), network=parse_network("ib"))
    assert with_assumed_network(with_nics(given_network, "32x100G")).network == parse_network("ib")


@pytest.mark.parametrize("text", ["", "efa", "75", "75ms", "-5us", "99999us", "1e3us", "٧us"])
def test_other_networks_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--fabric"):
        parse_network(text)
    assert parse_network(" 12.5 US ").latency_us == 12.5


def test_hosts_with_unidentified_gpus_are_refused() -> None:
    unread = Gpu(0, "NVIDIA H100", "0000:00:00.0", nvlink=None, sm=90)
    assert of_gpus(unread, 8, 0, 0.0, nvls=True) == "the NVLinks of NVIDIA H100 could not be read"
    known_gpu = Gpu(1, "NVIDIA A100", "0000:01:00.0", nvlink=12, nvlink_rate=25e9, sm=80)
    with pytest.raises(NoMeasurement, match="differ: NVIDIA A100, NVIDIA H100"):
        of_host(Host("h0", gpus=[unread, known_gpu]))


def test_ports_of_one_card_are_joined() -> None:
    sixteen, eight = (with_nics(parse_system("h100x8"), text) for text in ("16x200G", "8x400G"))
    assert sixteen.model(fitted_release(), 2, 8) == eight.model(fitted_release(), 2, 8)


@pytest.mark.parametrize(
    ("text", "link", "over_nvlink"),
    [
        ("gh200x4", "NVLink, 18 links x 25 GB/s", True),
        ("gh200x2", "NVLink, 18 links x 25 GB/s", True),
        ("h100nvlx2", "NVLink, 12 links x 25 GB/s", True),
        ("h200nvlx4", "NVLink, 18 links x 25 GB/s", True),
        ("h200nvlx8", "PCIe 5 x16, 63 GB/s", False),
        ("a100pciex8", "PCIe 4 x16, 31.5 GB/s", False),
        ("h100pciex2", "PCIe 5 x16, 63 GB/s", False),
        ("rtx4090x8", "PCIe 4 x16, 31.5 GB/s", False),
        ("rtx5090x2", "PCIe 5 x16, 63 GB/s", False),
    ],
)
def test_gpus_without_a_switch(text: str, link: str, over_nvlink: bool) -> None:
    described = parse_system(text)
    assert (described.link_text, described.over_nvlink) == (link, over_nvlink)
    assert not described.nvls
    assert described.model(fitted_release(), 1, described.gpus).nvls is None


def test_half_of_the_gh200_of_a_host_have_a_third_of_their_links() -> None:
    described = parse_system("gh200x4")
    assert described.fabric(1, 2).gpu == 150e9
    assert described.fabric(4, 4).nics == 100e9


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("h200nvlx8", "join up to 4 of these cards"),
        ("a100pciex2", "where pairs of these cards have them, are not counted"),
        ("rtx5090x8", "do not reach each other's memory"),
    ],
)
def test_what_is_said_of_cards(text: str, note: str) -> None:
    assert any(note in said for said in parse_system(text).notes)
