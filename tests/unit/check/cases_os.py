"""Cases of the layers kernel, limits, CPU and memory."""

from healthy_os import LIMITS

OS = {"memlock": lambda tree: tree.file("/proc/self/limits", LIMITS.replace("memory         unlimited", "memory         8388608  "))}
