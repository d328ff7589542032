"""Variables left over from experiments."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

# With the default; '' if NCCL computes it.
DEFAULTS = {
    "NCCL_MIN_NCHANNELS": "",
    "NCCL_MAX_NCHANNELS": "",
    "NCCL_MIN_CTAS": "",
    "NCCL_MAX_CTAS": "",
    "NCCL_MIN_NRINGS": "",
    "NCCL_MAX_NRINGS": "",
    "NCCL_MIN_P2P_NCHANNELS": "",
    "NCCL_MAX_P2P_NCHANNELS": "",
    "NCCL_NCHANNELS_PER_NET_PEER": "",
    "NCCL_NTHREADS": "",
    "NCCL_BUFFSIZE": "4194304",
    "NCCL_LL_BUFFSIZE": "",
    "NCCL_LL128_BUFFSIZE": "",
    "NCCL_P2P_NET_CHUNKSIZE": "131072",
    "NCCL_NET_SHARED_BUFFERS": "1",
    "NCCL_NET_SHARED_COMMS": "1",
    "NCCL_NVB_DISABLE": "0",
    "NCCL_PXN_DISABLE": "0",
    "NCCL_P2P_DIRECT_DISABLE": "0",
    "NCCL_P2P_PXN_LEVEL": "2",
    "NCCL_DMABUF_ENABLE": "1",
    "NCCL_CHECK_POINTERS": "0",
    "NCCL_LAUNCH_MODE": "PARALLEL",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
    "NCCL_IB_PCI_RELAXED_ORDERING": "2",
    "NCCL_IB_RETRY_CNT": "7",
}

ROW = CheckRow(
    id="BW181",
    name="nccl-tuning",
    layer=Layer.NCCL,
    title="channels, buffers and other values left over from experiments",
    right="none set, or set to the default",
    why="Such a value suits the machine, size and NCCL version that it was found with. Channels use GPU blocks, buffer sizes must be the "
    "same on all ranks, and new NCCL versions behave differently.",
    fix="unset {variable}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, environment variables, debugging",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each variable that is set."""
    yield from each(machine, tuple(DEFAULTS), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    default = DEFAULTS[setting.name]
    if default and setting.value.upper() == default:
        return passed(setting.name, f"{setting.text} is the default", setting.evidence())
    expected = f"not set, or {default}" if default else "not set"
    return warned(setting.name, f"{setting.text} changes performance: keep it only if a measurement shows its use",
                  setting.evidence(expected), fix=setting.unset)  # fmt: skip


CHECK = Check(ROW, look)
