"""A check report as the text of Alibaba's `rdma_qos_check -V`, for scripts that read it.

Items, columns and example values are those of its public page ("SCC instances with GPUs"). The
result is `ok` or `fail`. An item that no check answers is left out, also where the system does not
offer the value; one of a part that failed to answer is `fail`. `roce_tos` is busbw's name: the page
shows that error without its item.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from busbw.check.types import Checked, CheckReport, Evidence
from busbw.core.finding import Verdict

WIDTH = 59
ANSWERS = {Verdict.PASS: "ok", Verdict.WARN: "fail", Verdict.FAIL: "fail"}


@dataclass(frozen=True, slots=True)
class Item:
    """One item: the check that answers it, where its value is among the evidence, and how it is
    written.
    """

    name: str
    check: str
    where: re.Pattern[str]  # its group is the interface or device
    text: Callable[[str], str] = str
    right: Callable[[str], bool] | None = None  # of the value alone; otherwise the verdict counts


ITEMS = (
    Item(
        "link_up",
        "nic-physical-state",
        re.compile(r"/sys/class/net/(.+)/operstate"),
        lambda value: "yes" if value == "up" else "no",
        lambda value: value == "up",
    ),
    Item(
        "mlnx_device",
        "nic-driver",
        re.compile(r"ethtool -i (.+): driver"),
        lambda value: str(int(value == "mlx5_core")),
        lambda value: value == "mlx5_core",
    ),
    Item("drv_ver", "nic-driver", re.compile(r"ethtool -i (.+): version")),
    Item(
        "roce_ver",
        "roce-cm-mode",
        re.compile(r".*/rdma_cm/([^/]+)/.*default_roce_mode"),
        lambda value: str(int(value == "RoCE v2")),
    ),
    Item("cm_tos", "roce-cm-tos", re.compile(r".*/rdma_cm/([^/]+)/.*default_roce_tos")),
    Item("trust_mod", "roce-trust", re.compile(r"(?:/sys/class/net/|dcb )([^/]+)(?:/qos/trust)?")),
    Item(
        "roce_tos",
        "roce-traffic-class",
        re.compile(r"/sys/class/infiniband/(.+)/tc/.*"),
        lambda value: value.partition(" ")[0],
    ),
)
FIRMWARE, BUS = re.compile(r"ethtool -i (.+): firmware"), re.compile(r"ethtool -i .+: bus")


def text(report: CheckReport) -> str:
    """The whole text."""
    lines = [
        "=" * WIDTH,
        "*    rdma_qos_check",
        "-" * WIDTH,
        _line("ITEM", "DETAIL", "RESULT"),
        "=" * WIDTH,
    ]
    for item in ITEMS:
        lines += dict.fromkeys((*_answers(report, item), *_silent(report, item)))
        lines += _pairs(report) if item.name == "drv_ver" else ()
    return "\n".join([*lines, *_slots(report), "=" * WIDTH, ""])


def _line(item: str, detail: str, result: str) -> str:
    return f"* {item:<13} {detail:<36} {result:>6}"


def _answers(report: CheckReport, item: Item) -> Iterator[str]:
    for one in _answered(report, item.check):
        for evidence in one.evidence:
            if match := item.where.fullmatch(evidence.where):
                result = (
                    ANSWERS[one.verdict]
                    if item.right is None
                    else "ok"
                    if item.right(evidence.seen)
                    else "fail"
                )
                yield _line(item.name, f"{match.group(1)}: {item.text(evidence.seen)}", result)


def _silent(report: CheckReport, item: Item) -> Iterator[str]:
    """Parts that were asked and gave no answer."""
    for one in report.findings:
        if one.name == item.check and one.verdict is Verdict.UNKNOWN and not one.optional:
            yield _line(item.name, f"{one.subject or report.host}: unknown", "fail")


def _answered(report: CheckReport, check: str) -> list[Checked]:
    return [one for one in report.findings if one.name == check and one.verdict in ANSWERS]


def _pairs(report: CheckReport) -> Iterator[str]:
    """drv_ver/fw_ver of each interface.

    The valid pairs are not public; `fail` marks a NIC that differs from the same model.
    """
    firmware = {one.subject: ANSWERS[one.verdict] for one in _answered(report, "nic-firmware")}
    for one in _answered(report, "nic-driver"):
        device = one.subject.partition(":")[0]
        names = {
            match.group(1): evidence.seen
            for evidence in one.evidence
            if (match := FIRMWARE.fullmatch(evidence.where))
        }
        for netdev, value in names.items():
            version = _seen(one.evidence, f"ethtool -i {netdev}: version")
            if version and device in firmware:
                bad = "fail" in (firmware[device], ANSWERS[one.verdict])
                yield _line(
                    "drv_fw_ver",
                    f"{netdev}: {version}/{value.partition(' ')[0]}",
                    "fail" if bad else "ok",
                )


def _slots(report: CheckReport) -> Iterator[str]:
    """Each PCI function of a port, by the checks of the layer PCIe on its device."""
    for one in report.findings:
        if one.name == "nic-driver":
            device = one.subject.partition(":")[0]
            answers = {
                ANSWERS[other.verdict]
                for other in report.findings
                if other.layer == "PCIe" and other.subject == device and other.verdict in ANSWERS
            }
            for evidence in one.evidence:
                if answers and BUS.fullmatch(evidence.where):
                    yield _line("pci", evidence.seen, "fail" if "fail" in answers else "ok")


def _seen(evidence: tuple[Evidence, ...], where: str) -> str:
    return next((one.seen for one in evidence if one.where == where), "")
