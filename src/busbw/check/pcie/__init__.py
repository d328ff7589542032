"""PCIe links, switches and settings."""

from busbw.check.base import Check
from busbw.check.pcie import (
    acs,
    aer_correctable,
    aer_fatal,
    ats,
    gpudirect_loopback,
    iommu,
    load_link,
    load_rate,
    load_transitions,
    max_payload,
    max_read_request,
    nic_bandwidth,
    numa,
    nvme,
    path,
    relaxed_ordering,
    speed,
    width,
)

CHECKS: tuple[Check, ...] = (
    width.CHECK,
    speed.CHECK,
    nic_bandwidth.CHECK,
    path.CHECK,
    numa.CHECK,
    acs.CHECK,
    iommu.CHECK,
    ats.CHECK,
    max_read_request.CHECK,
    max_payload.CHECK,
    relaxed_ordering.CHECK,
    aer_fatal.CHECK,
    aer_correctable.CHECK,
    load_rate.CHECK,
    load_link.CHECK,
    load_transitions.CHECK,
    gpudirect_loopback.CHECK,
    nvme.CHECK,
)
