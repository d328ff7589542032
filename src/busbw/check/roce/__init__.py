"""Quality of service of RoCE."""

from busbw.check.base import Check
from busbw.check.roce import alike, at_start, cm_mode, cm_tos, cnp, ecn, pause_global, pfc, priority_traffic, storm, traffic_class, trust

CHECKS: tuple[Check, ...] = (
    trust.CHECK,
    pfc.CHECK,
    ecn.CHECK,
    cm_mode.CHECK,
    cm_tos.CHECK,
    traffic_class.CHECK,
    priority_traffic.CHECK,
    alike.CHECK,
    pause_global.CHECK,
    cnp.CHECK,
    storm.CHECK,
    at_start.CHECK,
)
