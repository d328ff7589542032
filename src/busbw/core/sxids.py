"""The table of SXids: what NVIDIA's driver reports about an NVSwitch.

Most lines have a word for the severity, and that word decides: a number may be fatal on one
generation and not on another. The table has the severity of lines without such a word, and says
which errors always need a restart of the host, and which need nothing.

Sources: Fabric Manager user guide DU-09883-001 v1.3, appendix D (which are harmless, fatal and
always fatal), and NVIDIA's open-gpu-kernel-modules df1c9a3, src/common/nvswitch (numbers, short
names, and the severity with which the driver reports them).
"""

from dataclasses import dataclass
from enum import Enum

_COOLING = "check fans, air flow and the temperature of the intake"
FIX_OF: dict[int, str] = {10004: _COOLING, 28001: _COOLING}
# a condition, and the SXid that reports its end
ENDED_BY: dict[int, int] = {10004: 10005, 28001: 28002, 28003: 28004}


class SwitchEffect(Enum):
    """What an SXid means for the host of the NVSwitch, in the words of the reference page."""

    ALWAYS = "reboot"  # fatal to the whole fabric
    FATAL = "reset of GPUs and NVSwitches"  # fatal to the jobs that use the link
    WATCH = "watch"  # an error without lasting harm, or one that hints at a bad link
    NOTE = "none"  # corrected, or the end of a condition


_ALWAYS, _FATAL = SwitchEffect.ALWAYS, SwitchEffect.FATAL
_WATCH, _NOTE = SwitchEffect.WATCH, SwitchEffect.NOTE
# The driver does not log a reset by nvidia-smi, so the command writes a line for this check.
FIXES: dict[SwitchEffect, str] = {
    SwitchEffect.ALWAYS: (
        "drain the host first; stop all users of the GPUs; reboot it; if it comes back, replace the"
        " board"
    ),
    SwitchEffect.FATAL: (
        "drain the host first; systemctl stop nvidia-fabricmanager; nvidia-smi --gpu-reset;"
        " systemctl start nvidia-fabricmanager; echo '{switch}: reset done' > /dev/kmsg; or reboot"
        " it; if it comes back, replace the board"
    ),
    SwitchEffect.WATCH: (
        "journalctl -u nvidia-fabricmanager; if it recurs on the same link, dcgmi diag -r 3 and"
        " report it to the vendor"
    ),
    SwitchEffect.NOTE: "none",
}
WORDS: dict[str, SwitchEffect] = {
    "Correctable": SwitchEffect.NOTE,
    "Non-fatal": SwitchEffect.WATCH,
    "Fatal": SwitchEffect.FATAL,
}


@dataclass(frozen=True, slots=True)
class SxidRow:
    """One SXid."""

    number: int
    meaning: str
    effect: SwitchEffect

    def judged(self, word: str) -> SwitchEffect:
        """The effect of a line with this word for the severity ('' if it has none)."""
        effect = WORDS.get(word, self.effect)
        if effect is SwitchEffect.FATAL and self.effect is SwitchEffect.ALWAYS:
            return SwitchEffect.ALWAYS
        if effect is SwitchEffect.WATCH and self.effect is SwitchEffect.NOTE:
            return SwitchEffect.NOTE
        return effect

    def fix(self, effect: SwitchEffect, switch: str) -> str:
        """The remedy; `switch` is the NVSwitch's PCI address."""
        return FIX_OF.get(self.number, FIXES[effect]).format(switch=switch)


SXIDS: tuple[SxidRow, ...] = (
    SxidRow(10001, "PRI error", _WATCH),
    SxidRow(10002, "PRI timeout", _WATCH),
    SxidRow(10003, "unhandled interrupt", _ALWAYS),
    SxidRow(10004, "temperature warning began", _WATCH),
    SxidRow(10005, "temperature warning ended", _NOTE),
    SxidRow(10006, "shut down for its temperature", _FATAL),
    SxidRow(10007, "register access failed", _FATAL),
    SxidRow(10008, "firmware did not start", _FATAL),
    SxidRow(10009, "firmware is in recovery mode", _FATAL),
    SxidRow(10010, "TNVL mode failed", _WATCH),
    SxidRow(11001, "ingress invalid command", _FATAL),
    SxidRow(11004, "ingress invalid ACL", _WATCH),
    SxidRow(11009, "ingress invalid VCSet", _FATAL),
    SxidRow(11011, "ingress request context mismatch", _WATCH),
    SxidRow(11012, "ingress header ECC", _NOTE),
    SxidRow(11013, "ingress header DBE", _FATAL),
    SxidRow(11014, "ingress address bounds", _WATCH),
    SxidRow(11015, "ingress RID packet", _WATCH),
    SxidRow(11016, "ingress RLAN packet", _WATCH),
    SxidRow(11017, "ingress Remap DBE", _FATAL),
    SxidRow(11018, "ingress RID DBE", _FATAL),
    SxidRow(11019, "ingress RLAN DBE", _FATAL),
    SxidRow(11020, "ingress control parity", _FATAL),
    SxidRow(11021, "ingress remap ECC", _NOTE),
    SxidRow(11022, "ingress RID ECC", _NOTE),
    SxidRow(11023, "ingress RLAN ECC", _NOTE),
    SxidRow(11024, "ingress illegal address", _WATCH),
    SxidRow(11025, "ingress ExtA remap index", _WATCH),
    SxidRow(11026, "ingress ExtB remap index", _WATCH),
    SxidRow(11027, "ingress MC remap index", _WATCH),
    SxidRow(11028, "ingress ExtA remap DBE", _FATAL),
    SxidRow(11029, "ingress ExtB remap DBE", _FATAL),
    SxidRow(11030, "ingress MC remap DBE", _FATAL),
    SxidRow(11031, "ingress ExtA request context mismatch", _WATCH),
    SxidRow(11032, "ingress ExtB request context mismatch", _WATCH),
    SxidRow(11033, "ingress MC request context mismatch", _WATCH),
    SxidRow(11034, "ingress invalid ExtA ACL", _WATCH),
    SxidRow(11035, "ingress invalid ExtB ACL", _WATCH),
    SxidRow(11036, "ingress invalid MC ACL", _WATCH),
    SxidRow(11037, "ingress ExtA address bounds", _WATCH),
    SxidRow(11038, "ingress ExtB address bounds", _WATCH),
    SxidRow(11039, "ingress MC address bounds", _WATCH),
    SxidRow(11040, "ingress ExtA remap ECC", _NOTE),
    SxidRow(11041, "ingress ExtB remap ECC", _NOTE),
    SxidRow(11042, "ingress MC remap ECC", _NOTE),
    SxidRow(11043, "ingress MC command to uc", _WATCH),
    SxidRow(11044, "ingress read reflective", _WATCH),
    SxidRow(11045, "ingress ExtA address type", _WATCH),
    SxidRow(11046, "ingress ExtB address type", _WATCH),
    SxidRow(11047, "ingress MC address type", _WATCH),
    SxidRow(12001, "egress crossbar overflow", _FATAL),
    SxidRow(12002, "egress packet route", _FATAL),
    SxidRow(12014, "egress non-posted UR error", _FATAL),
    SxidRow(12020, "egress sequence ID error", _ALWAYS),
    SxidRow(12021, "egress input ECC error limit", _NOTE),
    SxidRow(12022, "egress input ECC DBE error", _FATAL),
    SxidRow(12023, "egress output ECC error limit", _NOTE),
    SxidRow(12024, "egress output ECC DBE error", _FATAL),
    SxidRow(12025, "egress credit overflow", _FATAL),
    SxidRow(12026, "egress destination request ID error", _FATAL),
    SxidRow(12027, "egress destination response ID error", _FATAL),
    SxidRow(12028, "egress non-posted PRIV error", _WATCH),
    SxidRow(12029, "egress non-posted HW error", _FATAL),
    SxidRow(12030, "egress control parity error", _FATAL),
    SxidRow(12031, "egress credit parity error", _FATAL),
    SxidRow(12032, "egress flit type mismatch", _FATAL),
    SxidRow(12033, "egress credit timeout", _FATAL),
    SxidRow(12034, "egress invalid VC set", _FATAL),
    SxidRow(12035, "egress crossbar SB parity", _FATAL),
    SxidRow(12036, "egress reduction header ECC error limit", _NOTE),
    SxidRow(12037, "egress reduction header ECC DBE error", _WATCH),
    SxidRow(12038, "egress MC response ECC error limit", _NOTE),
    SxidRow(12039, "egress MC response ECC DBE error", _FATAL),
    SxidRow(12040, "egress RB ECC error limit", _NOTE),
    SxidRow(12041, "egress reduction ECC DBE error", _FATAL),
    SxidRow(12042, "egress RSG ECC error limit", _NOTE),
    SxidRow(12043, "egress MC SG ECC DBE error", _FATAL),
    SxidRow(12044, "egress MCRB ECC error limit", _NOTE),
    SxidRow(12045, "egress reduction buffer ECC DBE error", _WATCH),
    SxidRow(12046, "egress MC header ECC error limit", _NOTE),
    SxidRow(12047, "egress MC ram ECC DBE error", _FATAL),
    SxidRow(12048, "egress reduction header parity error", _WATCH),
    SxidRow(12049, "egress reduction flit mismatch error", _WATCH),
    SxidRow(12050, "egress MC response count error", _WATCH),
    SxidRow(12051, "egress reduction response count error", _WATCH),
    SxidRow(14001, "TS pointer crossover", _FATAL),
    SxidRow(14002, "TS crumbstore", _FATAL),
    SxidRow(14007, "TS tag store single-bit threshold", _NOTE),
    SxidRow(14008, "TS tag store fatal ECC", _FATAL),
    SxidRow(14009, "TS crumbstore single-bit threshold", _NOTE),
    SxidRow(14010, "TS crumbstore fatal ECC", _FATAL),
    SxidRow(14017, "TS ATO timeout", _FATAL),
    SxidRow(14018, "Rsp Tag value out of range", _FATAL),
    SxidRow(15001, "route buffer over/underflow", _FATAL),
    SxidRow(15002, "route undefined route", _WATCH),
    SxidRow(15003, "route invalid policy", _WATCH),
    SxidRow(15006, "route transdone over/underflow", _FATAL),
    SxidRow(15008, "GLT ECC limit", _NOTE),
    SxidRow(15009, "route GLT DBE", _FATAL),
    SxidRow(15010, "route parity", _FATAL),
    SxidRow(15011, "route ECC limit", _NOTE),
    SxidRow(15012, "route incoming DBE", _FATAL),
    SxidRow(15013, "route credit parity", _FATAL),
    SxidRow(15014, "MCRID ECC limit", _NOTE),
    SxidRow(15015, "MC route ECC", _FATAL),
    SxidRow(15016, "EXTMCRID ECC limit", _NOTE),
    SxidRow(15017, "Extd MC route ECC", _FATAL),
    SxidRow(15018, "RAM ECC limit", _NOTE),
    SxidRow(15019, "route RAM ECC", _FATAL),
    SxidRow(15020, "invalid MC route", _WATCH),
    SxidRow(18018, "reset timed out in PHYARB", _FATAL),
    SxidRow(18019, "reset timed out in PLL", _FATAL),
    SxidRow(18020, "illegal clock request", _FATAL),
    SxidRow(19004, "TX DL Credit Parity Error", _FATAL),
    SxidRow(19009, "Poison Error", _FATAL),
    SxidRow(19013, "RX DL HDR Parity Error", _FATAL),
    SxidRow(19014, "RX DL Data Parity Error", _FATAL),
    SxidRow(19015, "RX DL Ctrl Parity Error", _FATAL),
    SxidRow(19018, "RX Invalid DAE Error", _FATAL),
    SxidRow(19019, "RX Invalid BE Error", _FATAL),
    SxidRow(19020, "RX Invalid Addr Align Error", _FATAL),
    SxidRow(19021, "RX Packet Length Error", _FATAL),
    SxidRow(19022, "RSV Cmd Encoding Error", _FATAL),
    SxidRow(19023, "RSV Data Length Encoding Error", _FATAL),
    SxidRow(19026, "RSV Packet Status Error", _FATAL),
    SxidRow(19027, "RSV Packet Status Error", _FATAL),
    SxidRow(19028, "RSV CacheAttr Probe Rsp Error", _FATAL),
    SxidRow(19030, "Data Length RMW Req Max Error", _FATAL),
    SxidRow(19031, "Data Len Lt ATR RSP Min Error", _FATAL),
    SxidRow(19032, "Invalid Cache Attr PO Error", _FATAL),
    SxidRow(19033, "Invalid CR Error", _FATAL),
    SxidRow(19036, "RX HDR OVF Error", _FATAL),
    SxidRow(19037, "RX Data OVF Error", _FATAL),
    SxidRow(19038, "Stomp Det Error", _FATAL),
    SxidRow(19039, "RX Poison Error", _FATAL),
    SxidRow(19046, "NCISOC Parity Error", _FATAL),
    SxidRow(19047, "NCISOC HDR ECC DBE Error", _FATAL),
    SxidRow(19048, "NCISOC DAT ECC DBE Error", _FATAL),
    SxidRow(19049, "NCISOC ECC Limit Error", _NOTE),
    SxidRow(19050, "TX Response Status HW Error", _FATAL),
    SxidRow(19051, "TX Response Status UR Error", _FATAL),
    SxidRow(19052, "TX Response Status PRIV Error", _FATAL),
    SxidRow(19053, "NCISOC Parity Error", _FATAL),
    SxidRow(19054, "HDR RAM ECC DBE Error", _FATAL),
    SxidRow(19055, "HDR RAM ECC Limit Error", _NOTE),
    SxidRow(19056, "DAT0 RAM ECC DBE Error", _FATAL),
    SxidRow(19057, "DAT0 RAM ECC Limit Error", _NOTE),
    SxidRow(19058, "DAT1 RAM ECC DBE Error", _FATAL),
    SxidRow(19059, "DAT1 RAM ECC Limit Error", _NOTE),
    SxidRow(19060, "CREQ RAM HDR ECC DBE Error", _FATAL),
    SxidRow(19061, "CREQ RAM DAT ECC DBE Error", _FATAL),
    SxidRow(19062, "CREQ RAM DAT ECC Limit Error", _NOTE),
    SxidRow(19063, "Response RAM HDR ECC DBE Error", _FATAL),
    SxidRow(19064, "Response RAM DAT ECC DBE Error", _FATAL),
    SxidRow(19065, "Response RAM ECC Limit Error", _NOTE),
    SxidRow(19066, "COM RAM HDR ECC DBE Error", _FATAL),
    SxidRow(19067, "COM RAM DAT ECC DBE Error", _FATAL),
    SxidRow(19068, "COM RAM ECC Limit Error", _NOTE),
    SxidRow(19069, "RSP1 RAM HDR ECC DBE Error", _FATAL),
    SxidRow(19070, "RSP1 RAM DAT ECC DBE Error", _FATAL),
    SxidRow(19071, "RSP1 RAM ECC Limit Error", _NOTE),
    SxidRow(19072, "AN1 Timeout VC0", _WATCH),
    SxidRow(19073, "AN1 Timeout VC1", _WATCH),
    SxidRow(19074, "AN1 Timeout VC2", _WATCH),
    SxidRow(19075, "AN1 Timeout VC3", _WATCH),
    SxidRow(19076, "AN1 Timeout VC4", _WATCH),
    SxidRow(19077, "AN1 Timeout VC5", _WATCH),
    SxidRow(19078, "AN1 Timeout VC6", _WATCH),
    SxidRow(19079, "AN1 Timeout VC7", _WATCH),
    SxidRow(19080, "RX Rsp Status HW Error", _FATAL),
    SxidRow(19081, "RX Rsp Status UR Error", _FATAL),
    SxidRow(19082, "RX Rsp Status PRIV Error", _WATCH),
    SxidRow(19083, "Invalid Collapsed Response Error", _FATAL),
    SxidRow(19084, "AN1 Heartbeat Timeout Error", _WATCH),
    SxidRow(20001, "TX Replay Error", _NOTE),
    SxidRow(20002, "TX Recovery Short", _WATCH),
    SxidRow(20004, "TX Fault Ram", _FATAL),
    SxidRow(20005, "TX Fault Interface", _FATAL),
    SxidRow(20006, "TX Fault Sublink Change", _FATAL),
    SxidRow(20007, "RX Fault Sublink Change", _FATAL),
    SxidRow(20008, "RX Fault DL Protocol", _FATAL),
    SxidRow(20009, "RX Short Error Rate", _WATCH),
    SxidRow(20010, "RX Long Error Rate", _WATCH),
    SxidRow(20011, "RX ILA Trigger", _WATCH),
    SxidRow(20012, "CRC errors on the link", _WATCH),
    SxidRow(20014, "LTSSM Protocol Error", _FATAL),
    SxidRow(20034, "LTSSM Fault Up", _FATAL),
    SxidRow(20035, "LTSSM Fault Down", _FATAL),
    SxidRow(20036, "PHY_A Error", _FATAL),
    SxidRow(20037, "TX_PL Error", _FATAL),
    SxidRow(20038, "RX_PL Error", _FATAL),
    SxidRow(22003, "MINION HALT", _ALWAYS),
    SxidRow(22006, "MINION command fault", _WATCH),
    SxidRow(22007, "MINION command timeout", _WATCH),
    SxidRow(22010, "MINION Watchdog timer ran out", _FATAL),
    SxidRow(22011, "MINION EXTERR", _ALWAYS),
    SxidRow(22012, "MINION link interrupt", _FATAL),
    SxidRow(22013, "MINION link request", _NOTE),
    SxidRow(23001, "ingress SRC-VC buffer overflow", _ALWAYS),
    SxidRow(23002, "ingress SRC-VC buffer underflow", _ALWAYS),
    SxidRow(23003, "egress DST-VC credit overflow", _ALWAYS),
    SxidRow(23004, "egress DST-VC credit underflow", _ALWAYS),
    SxidRow(23005, "ingress packet burst error", _ALWAYS),
    SxidRow(23006, "ingress packet sticky error", _ALWAYS),
    SxidRow(23007, "possible bubbles at ingress", _ALWAYS),
    SxidRow(23008, "ingress packet invalid dst error", _ALWAYS),
    SxidRow(23009, "ingress packet parity error", _ALWAYS),
    SxidRow(23010, "ingress SRC-VC buffer overflow", _ALWAYS),
    SxidRow(23011, "ingress SRC-VC buffer underflow", _ALWAYS),
    SxidRow(23012, "egress DST-VC credit overflow", _ALWAYS),
    SxidRow(23013, "egress DST-VC credit underflow", _ALWAYS),
    SxidRow(23014, "ingress packet burst error", _ALWAYS),
    SxidRow(23015, "ingress packet sticky error", _ALWAYS),
    SxidRow(23016, "possible bubbles at ingress", _ALWAYS),
    SxidRow(23017, "ingress credit parity error", _ALWAYS),
    SxidRow(24001, "sourcetrack TCEN0 crumbstore ECC limit", _NOTE),
    SxidRow(24002, "sourcetrack TCEN0 TD crumbstore ECC limit", _NOTE),
    SxidRow(24003, "sourcetrack TCEN1 crumbstore ECC limit", _NOTE),
    SxidRow(24004, "sourcetrack TCEN0 crumbstore DBE", _FATAL),
    SxidRow(24005, "sourcetrack TCEN0 TD crumbstore DBE", _FATAL),
    SxidRow(24006, "sourcetrack TCEN1 crumbstore DBE", _FATAL),
    SxidRow(24007, "sourcetrack timeout error", _FATAL),
    SxidRow(24008, "sourcetrack duplicate CREQ", _FATAL),
    SxidRow(24009, "sourcetrack invalid TCEN0 CREQ", _FATAL),
    SxidRow(24010, "sourcetrack invalid TCEN1 CREQ", _FATAL),
    SxidRow(25001, "illegal link state request", _WATCH),
    SxidRow(25002, "MINION request failed", _WATCH),
    SxidRow(25003, "reserved request value", _WATCH),
    SxidRow(25004, "link state written while busy", _WATCH),
    SxidRow(25005, "link state request timed out", _WATCH),
    SxidRow(25006, "write to a locked register", _WATCH),
    SxidRow(25007, "sleep with an active link", _FATAL),
    SxidRow(25008, "link reset timed out in PHYCTL", _FATAL),
    SxidRow(25009, "link reset timed out in CLKCTL", _FATAL),
    SxidRow(25010, "link training failed", _WATCH),
    SxidRow(26001, "SOE did not reset", _FATAL),
    SxidRow(26002, "SOE did not boot", _FATAL),
    SxidRow(26003, "SOE command failed", _FATAL),
    SxidRow(26004, "SOE timed out", _FATAL),
    SxidRow(26005, "SOE did not shut down", _FATAL),
    SxidRow(26006, "SOE halted", _FATAL),
    SxidRow(26007, "SOE external error", _FATAL),
    SxidRow(26008, "SOE watchdog", _FATAL),
    SxidRow(27001, "cable controller did not reset", _WATCH),
    SxidRow(27002, "cable controller did not start", _WATCH),
    SxidRow(27003, "cable controller timed out", _WATCH),
    SxidRow(27004, "links of a module stay off", _WATCH),
    SxidRow(27005, "module error", _WATCH),
    SxidRow(27006, "module did not boot", _WATCH),
    SxidRow(27007, "module recovery failed", _WATCH),
    SxidRow(28001, "module temperature warning began", _WATCH),
    SxidRow(28002, "module temperature warning ended", _NOTE),
    SxidRow(28003, "module overheated", _FATAL),
    SxidRow(28004, "module overheating ended", _NOTE),
    SxidRow(28005, "module shut down, heartbeat lost", _FATAL),
    SxidRow(29001, "MC TS tag store single-bit threshold", _NOTE),
    SxidRow(29002, "MC TS tag store fatal ECC", _FATAL),
    SxidRow(29003, "MC TS crumbstore single-bit threshold", _NOTE),
    SxidRow(29004, "MC TS crumbstore fatal ECC", _FATAL),
    SxidRow(29005, "MC crumbstore overwrite", _FATAL),
    SxidRow(29006, "MC TS crumbstore MCTO", _WATCH),
    SxidRow(30001, "Red TS tag store single-bit threshold", _NOTE),
    SxidRow(30002, "Red TS tag store fatal ECC", _FATAL),
    SxidRow(30003, "Red TS crumbstore single-bit threshold", _NOTE),
    SxidRow(30004, "Red TS crumbstore fatal ECC", _FATAL),
    SxidRow(30005, "Red crumbstore overwrite", _FATAL),
    SxidRow(30006, "Red TS crumbstore RTO", _WATCH),
)
BY_NUMBER: dict[int, SxidRow] = {row.number: row for row in SXIDS}


def sxid(number: int) -> SxidRow:
    """The row of an SXid; one that warns if the table has none."""
    return BY_NUMBER.get(number) or SxidRow(number, "not in the table of SXids", SwitchEffect.WATCH)
