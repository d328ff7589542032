"""Reads a machine: sysfs, procfs, NVML, netlink."""
