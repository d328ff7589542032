"""Cases of the layer PCIe."""

PCIE = {}
