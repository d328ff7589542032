"""A check report as the text of Alibaba's `rdma_qos_check -V`, for scripts that read it.

Items, columns and example values are those of its public page ("SCC instances with GPUs"). The
result is `ok` or `fail`. An item that no check answers is left out, also where the system does not
offer the value. The result for a part that failed to answer is `fail`. `roce_tos` is busbw's name:
the page shows that error without its item.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from busbw.check.types import CheckReport, ReportedFinding
from busbw.core.finding import Verdict

WIDTH = 59
ANSWERS = {Verdict.PASS: "ok", Verdict.WARN: "fail", Verdict.FAIL: "fail"}
FIRMWARE, BUS = re.compile(r"ethtool -i (.+): firmware"), re.compile(r"ethtool -i .+: bus")


@dataclass(frozen=True, slots=True)
class Item:
    """One item: the check that answers it, and where its value is among the evidence.

    The group in `where` is the interface or device. `text` writes the value. `right` judges the
    value alone; without it the verdict of the check counts.
    """

    name: str
    check: str
    where: re.Pattern[str]
    text: Callable[[str], str] = str
    right: Callable[[str], bool] | None = None

    def result(self, verdict: Verdict, value: str) -> str:
        """`ok` or `fail`."""
        if self.right is None:
            return ANSWERS[verdict]
        return "ok" if self.right(value) else "fail"


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


def text(report: CheckReport) -> str:
    """The report in the format of rdma_qos_check."""
    lines = [
        "=" * WIDTH,
        "*    rdma_qos_check",
        "-" * WIDTH,
        _line("ITEM", "DETAIL", "RESULT"),
        "=" * WIDTH,
    ]
    for item in ITEMS:
        lines += dict.fromkeys((*_answer_lines(report, item), *_silent_lines(report, item)))
        lines += _version_lines(report) if item.name == "drv_ver" else ()
    return "\n".join([*lines, *_pci_lines(report), "=" * WIDTH, ""])


def _line(item: str, detail: str, result: str) -> str:
    return f"* {item:<13} {detail:<36} {result:>6}"


def _answer_lines(report: CheckReport, item: Item) -> Iterator[str]:
    for finding in _answered_findings(report, item.check):
        for evidence in finding.evidence:
            match = item.where.fullmatch(evidence.where)
            if match:
                result = item.result(finding.verdict, evidence.seen)
                yield _line(item.name, f"{match.group(1)}: {item.text(evidence.seen)}", result)


def _silent_lines(report: CheckReport, item: Item) -> Iterator[str]:
    """A line for each part that was asked and gave no answer."""
    for finding in report.findings:
        unanswered = finding.verdict is Verdict.UNKNOWN and not finding.optional
        if finding.name == item.check and unanswered:
            yield _line(item.name, f"{finding.subject or report.host}: unknown", "fail")


def _answered_findings(report: CheckReport, check: str) -> list[ReportedFinding]:
    return [
        finding
        for finding in report.findings
        if finding.name == check and finding.verdict in ANSWERS
    ]


def _version_lines(report: CheckReport) -> Iterator[str]:
    """drv_ver/fw_ver of each interface.

    The valid pairs are not public; `fail` marks a NIC that differs from the same model.
    """
    firmware = {
        finding.subject: ANSWERS[finding.verdict]
        for finding in _answered_findings(report, "nic-firmware")
    }
    for finding in _answered_findings(report, "nic-driver"):
        device = finding.subject.partition(":")[0]
        if device not in firmware:
            continue
        bad = "fail" in (firmware[device], ANSWERS[finding.verdict])
        for evidence in finding.evidence:
            match = FIRMWARE.fullmatch(evidence.where)
            netdev = match.group(1) if match else ""
            where = f"ethtool -i {netdev}: version"
            driver = next((value.seen for value in finding.evidence if value.where == where), "")
            if netdev and driver:
                pair = f"{netdev}: {driver}/{evidence.seen.partition(' ')[0]}"
                yield _line("drv_fw_ver", pair, "fail" if bad else "ok")


def _pci_lines(report: CheckReport) -> Iterator[str]:
    """Each PCI function of a port, by the checks of the layer PCIe on its device."""
    for finding in report.findings:
        if finding.name == "nic-driver":
            device = finding.subject.partition(":")[0]
            answers = _pcie_answers(report, device)
            for evidence in finding.evidence:
                if answers and BUS.fullmatch(evidence.where):
                    yield _line("pci", evidence.seen, "fail" if "fail" in answers else "ok")


def _pcie_answers(report: CheckReport, device: str) -> set[str]:
    return {
        ANSWERS[finding.verdict]
        for finding in report.findings
        if finding.layer == "PCIe" and finding.subject == device and finding.verdict in ANSWERS
    }
