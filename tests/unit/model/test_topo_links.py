"""NVLink and xGMI without switches: each GPU to each other, unevenly, in groups, to CPUs and to
nowhere.
"""

from collections.abc import Callable

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.model import topo_xml
from busbw.model.estimate import EstimateInputs
from busbw.model.hardware import gcn_name, xgmi, xgmi_gpus
from busbw.model.nccl.constants import fitted_release
from busbw.model.predict import check, predict
from busbw.model.systems import System

Links = Callable[[int], list[tuple[str, int, str]]]


def bus(number: int) -> str:
    return f"000{number}:0A:00.0"


def document(gpus: int, links: Links, *, tag: str = "nvlink", gpu: str = 'sm="80"') -> bytes:
    """A topology as NCCL and RCCL dump it; `links` gives target, count and class for a GPU's
    number.
    """
    parts = []
    for number in range(gpus):
        inner = "".join(
            f'<{tag} target="{target}" count="{count}" tclass="{kind}"/>'
            for target, count, kind in links(number)
        )
        parts.append(
            f'<pci busid="{bus(number)}" class="0x030200" link_speed="" link_width="0"><gpu'
            f' dev="{number}" {gpu}>{inner}</gpu></pci>'
        )
    return (
        '<system version="2"><cpu numaid="0" arch="x86_64"'
        f' vendor="AuthenticAMD">{"".join(parts)}</cpu></system>'.encode()
    )


def each_other(gpus: int, count: int, kind: str = "0x030200") -> Links:
    return lambda number: [
        (bus(other).lower(), count, kind) for other in range(gpus) if other != number
    ]


def read(data: bytes) -> System:
    return topo_xml.read(data, "t.xml")


def test_eight_mi300x_use_all_links_that_lead_to_gpus_that_take_part() -> None:
    system = read(
        document(8, each_other(8, 1, "0x120000"), tag="xgmi", gpu='sm="304" gcn="gfx942:sramecc+"')
    )
    for used, rate in ((8, 448e9), (4, 192e9), (2, 64e9)):
        fabric = system.fabric(1, used)
        assert (fabric.gpu, fabric.over_nvlink) == (rate, True)
        assert fabric.gpu_link == f"xGMI, {used - 1} link{'s' * (used > 2)} x 64 GB/s"
        assert system.fabric(1, used, payload=True).gpu == rate * 48 / 64
    assert (system.nvls, system.rccl, system.gpu) == (False, True, "MI300 or alike")


def test_rccl_has_no_model() -> None:
    system = read(document(4, each_other(4, 1), tag="xgmi", gpu='sm="120" gcn="908"'))
    answer = predict(EstimateInputs(system), BY_NAME["all_reduce"], [1], 4, [1 << 30], "t.xml")
    assert answer.rows == []
    assert all(level.planned is None for level in answer.bounds.levels)
    assert any("no model of RCCL" in note for note in answer.described.notes)
    assert answer.described.link == 3 * 46e9
    with pytest.raises(UsageError, match="no model of RCCL"):
        system.model(fitted_release(), 1, 4)


def test_a_pair_over_an_nvlink_bridge() -> None:
    system = read(document(2, each_other(2, 12)))
    assert (system.fabric(1, 2).gpu, system.nvls, system.part_unknown) == (300e9, False, False)
    assert system.model(fitted_release(), 1, 2).ring.channels > 0


def test_gpus_that_are_joined_unevenly_count_all_their_links() -> None:
    def ring(number: int) -> list[tuple[str, int, str]]:
        return [
            (bus((number + step) % 4).lower(), count, "0x030200")
            for step, count in ((1, 2), (3, 2), (2, 1))
        ]

    system = read(document(4, ring, gpu='sm="70"'))
    assert (system.fabric(1, 4).gpu, system.part_unknown) == (125e9, True)
    check(system, 1, 4)
    with pytest.raises(UsageError, match="joined unevenly"):
        check(system, 1, 2)


def itself(number: int) -> list[tuple[str, int, str]]:
    return [(bus(number).lower(), 12, "0x030200")]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            itself,
            r"12 NVLinks of GPU 0000:0a:00\.0 end at that GPU itself, as in a virtual machine",
        ),
        (
            lambda number: [(bus(number ^ 1).lower(), 12, "0x030200")],
            r"joins the 4 GPUs in 2 groups \(2, 2\)",
        ),
        (
            lambda number: [("ffff:00:00.0", 12, "0x068001")],
            "12 NVLinks of GPU 0000:0a:00.0 end at a CPU",
        ),
        (lambda number: [("0042:00:00.0", 12, "0x030200")], "a GPU that is not in the file"),
        (
            lambda number: [(bus(number ^ 1).lower(), 6, "0x030200"), ("c0", 6, "0x068000")],
            "end at GPUs and at switches",
        ),
    ],
    ids=["itself", "pairs", "a CPU", "nowhere", "both"],
)
def test_links_without_a_model_are_refused(links: Links, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(document(4, links))
    assert "--system" in caught.value.hint


def test_links_of_unknown_rate_or_number_are_refused() -> None:
    for gcn, message in (
        ("gfx906", "the rate of an xGMI link of gfx906"),
        ("906", "of gfx906"),
        ("<", "not XML"),
    ):
        with pytest.raises(UsageError, match=message):
            read(document(4, each_other(4, 1), tag="xgmi", gpu=f'sm="64" gcn="{gcn}"'))
    with pytest.raises(UsageError, match="links within a package of gfx90a as one"):
        read(
            document(
                4,
                lambda number: [(bus(number ^ 1), 1, "0x03"), (bus(number ^ 2), 1, "0x03")],
                tag="xgmi",
                gpu='sm="104" gcn="910"',
            )
        )


def test_a_target_without_a_class_is_a_gpu_of_the_file_or_a_switch() -> None:
    assert read(document(4, each_other(4, 4, ""))).pair is not None
    assert read(document(4, lambda number: [("00c0:00:00.0", 12, "")])).pair is None


def test_names_of_amds_architectures() -> None:
    assert [gcn_name(name) for name in ("gfx942:sramecc+:xnack-", "942", "910", "GFX950", "")] == [
        "gfx942",
        "gfx942",
        "gfx90a",
        "gfx950",
        "",
    ]
    assert all(xgmi(row.gcn) is row for row in xgmi_gpus())
    assert xgmi("gfx1100") is None
