"""PCIe links, switches and settings."""
