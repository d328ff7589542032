"""Rules of the kernel log on PCIe."""

from busbw.core.finding import Layer, Verdict
from busbw.core.kernel_rule import DAY_S, REPAIRED, KernelRule, Sign, Texts, line, rule

FAIL, WARN = Verdict.FAIL, Verdict.WARN

_FATAL = r"severity=Uncorrect(?:ed|able) \(Fatal\)"
_RECOVERED = line(r"<bdf>: AER: (?:device|Device) recovery successful")
AER_LOGGED = rule(
    Texts(
        "BW249",
        "pcie-aer-logged",
        Layer.PCIE,
        "uncorrectable PCIe errors in the log",
        "A transfer on PCIe was lost. A fatal error takes the link down; the device is gone unless"
        " it recovers.",
        "drain the host first; reboot it; if {subject} comes up again, reseat it, and replace its"
        " riser, cable or slot",
        REPAIRED,
        ("Linux, Documentation/PCI/pcieaer-howto.rst", "Meta GCM, check-syslogs pcie-aer"),
    ),
    Sign(
        line(rf"<bdf>: (?:AER: )?PCIe Bus Error: {_FATAL}"),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_RECOVERED,
    ),
    Sign(
        line(
            r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error (?:message )?received(?::|"
            r" from) <bdf>"
        ),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_RECOVERED,
    ),
    # Before Linux 4.19 the address is a number, and the port stands for the device below it.
    Sign(
        line(r"<bdf>: AER: (?:Multiple )?Uncorrected \(Fatal\) error received: id="),
        FAIL,
        "a fatal PCIe error",
        "the link went down with it",
        ends=_RECOVERED,
    ),
    Sign(
        line(r"<bdf>: AER: (?:device|Device) recovery failed"),
        FAIL,
        "the device did not recover from a PCIe error",
        "it stays off until it is reset",
        ends=_RECOVERED,
    ),
    Sign(
        line(r"<bdf>: AER: can't recover \(no error_detected callback\)"),
        FAIL,
        "its driver cannot recover it from a PCIe error",
        "it stays off until it is reset",
        ends=_RECOVERED,
    ),
    Sign(
        line(r"<bdf>: DPC: (?:containment event|unmasked uncorrectable error detected)"),
        FAIL,
        "a port cut off the device below it after an uncorrectable error",
        "the port says so if it recovers",
        ends=_RECOVERED,
    ),
    Sign(
        line(r"<bdf>: (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\)"),
        WARN,
        "an uncorrectable PCIe error",
        "the link stays up, one transfer was lost",
        DAY_S,
    ),
    Sign(
        line(
            r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error (?:message"
            r" )?received(?::| from) <bdf>"
        ),
        WARN,
        "an uncorrectable PCIe error",
        "the link stays up, one transfer was lost",
        DAY_S,
    ),
)

_REFUSED = "one transfer was refused"
_STUCK = "the IOMMU waits for it again and again"
IOMMU_FAULTS = rule(
    Texts(
        "BW259",
        "iommu-faults",
        Layer.PCIE,
        "transfers that the IOMMU refused",
        "A device read or wrote memory that it may not use: the transfer is lost, and RDMA or a"
        " copy between GPUs ends with an error or wrong data.",
        "update the driver and firmware of {subject}; where no virtual machine gets a device, add"
        " iommu=pt to the command line of the kernel and reboot",
        "iommu=pt stays in the boot loader's configuration",
        (
            "Linux, drivers/iommu/intel/dmar.c, drivers/iommu/amd/iommu.c and"
            " drivers/iommu/arm/arm-smmu-v3",
        ),
    ),
    Sign(
        line(
            r"DMAR: \[DMA (?P<kind>Read|Write)[^\]]*\] Request device"
            r" \[(?P<subject>[0-9a-fx:.]+)\]"
        ),
        WARN,
        "the IOMMU refused a DMA {kind}",
        _REFUSED,
        DAY_S,
    ),
    Sign(
        line(r"<bdf>: AMD-Vi: Event logged \[IO_PAGE_FAULT"),
        WARN,
        "the IOMMU refused a transfer",
        _REFUSED,
        DAY_S,
    ),
    Sign(
        line(r"AMD-Vi: Event logged \[IO_PAGE_FAULT (?:device=(?P<subject>[0-9a-f:.]+))?"),
        WARN,
        "the IOMMU refused a transfer",
        _REFUSED,
        DAY_S,
    ),
    Sign(
        line(
            r"arm-smmu\S* \S+: \s*(?:event: F_\w+ client: <bdf>|event 0x\w+ received"
            r"|Unhandled context fault)"
        ),
        WARN,
        "the IOMMU refused a transfer",
        _REFUSED,
        DAY_S,
    ),
    Sign(
        line(
            r"(?:DMAR: VT-d detected Invalidation|AMD-Vi: Completion-Wait loop timed out|DMAR: .*QI"
            r" (?:HEAD|PRIOR)|arm-smmu\S* \S+: CMD_SYNC timeout)"
        ),
        WARN,
        "a device did not answer the IOMMU in time",
        _STUCK,
        DAY_S,
    ),
)

PCIE_RULES: tuple[KernelRule, ...] = (AER_LOGGED, IOMMU_FAULTS)
