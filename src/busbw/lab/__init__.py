"""Two to eight hosts emulated on one machine: network and UTS namespaces, joined by links of a
given rate, delay and loss.
"""

from busbw.lab.building import all_labs, down, find, status, temporary_lab, up

__all__ = ["all_labs", "down", "find", "status", "temporary_lab", "up"]
