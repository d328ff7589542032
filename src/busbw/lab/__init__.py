"""Two to eight hosts emulated on one machine: network and UTS namespaces, joined by links of a
given rate, delay and loss.
"""

from busbw.lab.building import down, every, find, made, status, up

__all__ = ["down", "every", "find", "made", "status", "up"]
