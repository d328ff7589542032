"""A result of dispatch and combine with given figures."""

from busbw.core.result import EngineLibrary, Mismatch, RankDevice, World
from busbw.moe.types import PHASES, MoeResult, MoeRow, MoeSpec, MoeTime
from busbw.moe.volumes import DIRECTIONS


def row(tokens: int, direction: str, shares: tuple[float, float, float], **fields) -> MoeRow:
    """A row whose phases take these shares of its time."""
    time_s = tokens * 1e-6
    whole = MoeTime(time_s=time_s, low_s=0.98 * time_s, high_s=1.01 * time_s, n=8, stopped="ok")
    phases = {
        name: MoeTime(time_s=share * time_s)
        for name, share in zip(PHASES[direction], shares, strict=True)
    }
    values = {
        "wire_bytes": tokens * 50_000,
        "received_bytes": tokens * 60_000,
        "selections_bytes": tokens * 114_688,
        "imbalance": 1.04,
        "bound_s": 0.6 * time_s,
        "bound": "X/B = 205 MB / 450 GB/s: NVLink, 18 links x 25 GB/s",
    }
    return MoeRow(tokens=tokens, direction=direction, whole=whole, phases=phases, **values | fields)


def result(**fields) -> MoeResult:
    """Two numbers of tokens on eight GPUs."""
    devices = [RankDevice(rank, 1, "h1", rank, "0:1", "NVIDIA H200") for rank in range(8)]
    rows = [
        row(tokens, direction, (0.1, 0.8, 0.1), **fields)
        for tokens in (2048, 4096)
        for direction in DIRECTIONS
    ]
    return MoeResult(
        moe=MoeSpec(),
        rows=rows,
        complete=True,
        world=World(devices, 8),
        library=EngineLibrary("torch", 22809),
    )


WRONG = Mismatch(3, 7168, "1.5", "nan", 12)
