"""What a line of Xid 144 to 150, an error of NVLink 5, asks for.

Source: NVIDIA's Xid catalog, table XID 144-150 Decode. A line has the unit, its severity, and in
brackets intrInfo and errorStatus: `145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2
0x00000008 ...)`. Of 51 rows that are not fatal, 43 need no action.
"""

import re

from busbw.core.xids import Effect

# After `pid=1, name=python` comes the unit that failed, then its severity.
_LINE = re.compile(
    r", (?:pid=[^,]*, name=.*?, )?([\w/]+) +(Fatal|Nonfatal|Non-fatal)\b"
    r"(?:[^(]*\((0x[0-9a-f]+),? (0x[0-9a-f]+))?",
    re.ASCII | re.IGNORECASE,
)
# Errors that end the application, by unit: values of errorStatus. Xid 154 follows if they ask for
# more.
_ENDS_APPLICATION = {"RLW_REMAP": (0x1, 0x2, 0x4, 0x8, 0x10, 0x20), "RLW_SRC_TRACK": (0x4, 0x8)}
# Errors of RLW_RXPIPE that lose packets: the unit in intrInfo, as the mask and value of its bits.
_LOST_PACKETS, _RXPIPE = (0x1, 0x2, 0x4), ((0x7FF, 0x4C2), (0xFF, 0x86))
# Links that software took down, by bits 20 to 25 of intrInfo.
_BY_SOFTWARE = (0x26, 0x28)


def link_effect(text: str) -> Effect:
    """What the text after the number asks for: a reset, a restart of the application, or LINK,
    which is nothing for now.
    """
    match = _LINE.match(text)
    if match is None:
        return Effect.LINK
    unit, severity = match[1].upper(), match[2].lower()
    info, status = (int(word or "0", 16) for word in match.group(3, 4))
    if severity == "fatal":
        by_software = "LINK" in unit and info >> 20 & 0x3F in _BY_SOFTWARE
        return Effect.RESTART if by_software else Effect.RESET
    lost = unit == "RLW_RXPIPE" and status in _LOST_PACKETS
    if lost and any(info & mask == value for mask, value in _RXPIPE):
        return Effect.RESET
    return Effect.RESTART if status in _ENDS_APPLICATION.get(unit, ()) else Effect.LINK
