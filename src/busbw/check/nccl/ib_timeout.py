"""How long a lost packet may take before NCCL gives up."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each, version
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_IB_TIMEOUT"
DEFAULTS = (((2, 23), 20), ((2, 14), 18), ((), 14))  # from this version on
UNIT_S, RETRIES, INFINITE = 4.096e-6, 7, 32

ROW = CheckRow(
    id="BW172",
    name="nccl-ib-timeout",
    layer=Layer.NCCL,
    title=f"{VARIABLE}, compared with NCCL's default",
    right="not set, or at least the default: 20 since NCCL 2.23, 18 since 2.14, 14 before",
    why="The timeout is 4.096 us * 2^value, retried 7 times: 20 gives up after 30 s, 18 after 7.5 s, 14 after 0.5 s. Under congestion, "
    "or while a link recovers, a lower value ends jobs with error 12. 0, or 32 and above, never gives up.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "libnccl.so.2"),
    sources=("NCCL user guide, NCCL_IB_TIMEOUT",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and NCCL's version if known."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    found = version(machine)
    default = next(value for least, value in DEFAULTS if found >= least) if found else DEFAULTS[0][1]
    name = f"NCCL {'.'.join(map(str, found))}" if found else "NCCL since 2.23"
    value = parse_int(setting.value)
    evidence = setting.evidence(f"{default} or more, the default of {name}")
    if value <= 0 or value >= INFINITE:
        return warned("", f"{setting.text}: a lost connection is never reported, and the job hangs", evidence, fix=setting.unset)
    seconds = UNIT_S * 2**value * RETRIES
    if value < default:
        message = f"{setting.text} gives up after {seconds:.2g} s; the default of {name} is {default}"
        return warned("", message, evidence, fix=setting.unset)
    return passed("", f"{setting.text} gives up after {seconds:.2g} s", evidence)


CHECK = Check(ROW, look)
