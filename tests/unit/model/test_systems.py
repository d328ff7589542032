"""Systems in words, and the topology that NCCL writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.topology import Gpu, Host
from busbw.model import topo_xml
from busbw.model.hardware import GENERATIONS
from busbw.model.measured_system import of_host
from busbw.model.nccl.constants import LATEST
from busbw.model.systems import USUAL, of_gpus, parse_system, with_nics

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
    ("data", "message"),
    [
        (b"", "not XML"),
        (b"<system>", "not XML"),
        (b"<graphs/>", "not <system>"),
        (b"<system/>", "no <gpu>"),
        (b'<!DOCTYPE s [<!ENTITY a "b">]><system>&a;</system>', "entities"),
        (b"<!DOCTYPE system><system/>", "document types"),
        (b"<a>" * 70, "too deep"),
        (document().replace(b'sm="90"', b'sm="80"', 1), "differ"),
        (document(sm=75), "table"),
        (document().replace(b'speed="400000"', b'speed="200000"', 1), "NICs differ"),
        (b"\x00\xff" * 40, "not XML"),
        (b"x" * (17 << 20), "more than"),
    ],
)
def test_other_documents_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        topo_xml.read(data, "topo.xml")


@settings(max_examples=150, deadline=5000)
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
    "text", ["", "8x", "x400", "8x0G", "0x400G", "eight", "8x400T", "8*400G", "-8x400G"]
)
def test_invalid_nics_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--nics"):
        with_nics(parse_system("h100x8"), text)


@pytest.mark.parametrize(
    ("text", "count", "rate"),
    [("8x400G", 8, 50e9), ("400G", 1, 50e9), ("2 x 25", 2, 3.125e9), ("4x200gbit/s", 4, 25e9)],
)
def test_nics(text: str, count: int, rate: float) -> None:
    system = with_nics(parse_system("h100x8"), text)
    assert (system.nics, system.nic) == (count, rate)


def test_every_usual_system_is_in_the_table_of_gpus() -> None:
    names = {name.lower() for row in GENERATIONS for name in row.names}
    assert {row.word for row in USUAL} <= names
    assert all(row.source for row in USUAL)
    for row in USUAL:
        assert parse_system(f"{row.word}x8").gpus == 8
    assert parse_system("gb200nvl72").gpus == 72


def test_gpus_without_nvlink_are_named_but_not_described() -> None:
    with pytest.raises(UsageError, match="unknown GPU 'l40s'"):
        parse_system("l40sx8")


def test_hosts_with_unidentified_gpus_are_refused() -> None:
    unread = Gpu(0, "NVIDIA H100", "0000:00:00.0", nvlink=None, sm=90)
    assert of_gpus(unread, 8, 0, 0.0, nvls=True) == "the NVLinks of NVIDIA H100 could not be read"
    known_gpu = Gpu(1, "NVIDIA A100", "0000:01:00.0", nvlink=12, nvlink_rate=25e9, sm=80)
    with pytest.raises(NoMeasurement, match="differ: NVIDIA A100, NVIDIA H100"):
        of_host(Host("h0", gpus=[unread, known_gpu]))


def test_ports_of_one_card_are_joined() -> None:
    sixteen, eight = (with_nics(parse_system("h100x8"), text) for text in ("16x200G", "8x400G"))
    assert sixteen.model(LATEST, 2, 8) == eight.model(LATEST, 2, 8)
