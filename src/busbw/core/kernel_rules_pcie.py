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

PCIE_RULES: tuple[KernelRule, ...] = (AER_LOGGED,)
