"""One rank of test_torch_gloo.py: verifies every combination that PyTorch's Gloo supports, and
records what it refuses and why.

A rank as of torchrun.
"""

import json
import os
from typing import Any

from busbw.core.collectives import COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.redops import REDOPS, redop
from busbw.core.sweep import Series, SweepSpec
from busbw.engines.base import CollectiveCall, Probe
from busbw.engines.torch import TorchEngine
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.measure import verification
from busbw.measure.plan import Calls

ROOM_BYTES = 1 << 14
SIZES = (16, 1000)  # elements: the smallest, and parts that are not a power of two


class Matrix:
    """Runs every combination; all ranks take the same path, including after refusals."""

    def __init__(self, engine: TorchEngine, control: Control) -> None:
        self.engine, self.control = engine, control
        self.verified: list[str] = []
        self.wrong: list[str] = []
        self.refused: dict[str, str] = {}
        self.caught = 0

    def run(self) -> None:
        """The whole table."""
        for row in COLLECTIVES:
            for kind in DTYPES:
                for op in [op.name for op in REDOPS] if row.reduces else [""]:
                    name = f"{row.name} {kind.name} {op}".strip()
                    reason = self.engine.unsupported(row, kind, redop(op) if op else None)
                    if reason:
                        self.refused[name] = reason
                        continue
                    for root in range(self.engine.size) if row.rooted else [-1]:
                        calls = Calls(
                            SweepSpec(collective=row.name),
                            Series(kind.name, op, root),
                            self.engine.size,
                        )
                        self._placements(calls, f"{name} {root}".strip())
                    self.verified.append(name)

    def _placements(self, calls: Calls, name: str) -> None:
        size = calls.dtype.itemsize
        for in_place in (False, True) if calls.collective.in_place_checked else (False,):
            for elements, shift in ((SIZES[0], 0), (SIZES[1], size)):
                call = calls.at(elements * size, in_place=in_place, shift_bytes=shift)
                wrong = self._round(call, corrupt=False)
                if wrong:
                    self.wrong.append(
                        f"rank {self.engine.ranks[0]}: {name}, {'in' if in_place else 'out of'}"
                        f" place: {wrong}"
                    )
            self.caught += (
                self._round(calls.at(SIZES[1] * size, in_place=in_place), corrupt=True)
                == "1 wrong from offset 7"
            )

    def _round(self, call: CollectiveCall, *, corrupt: bool) -> str:
        launch = self.engine.bind(call)

        def run() -> None:
            launch()
            if corrupt:
                # the high byte of element 7
                self.engine.view(call, "recv")[8 * call.dtype.itemsize - 1] ^= 0x40

        (wrong,) = verification.run_round(
            self.engine, call, run, Probe(5, call.dtype, call.op, self.engine.size)
        )
        return f"{wrong.count} wrong from offset {wrong.offset}" if wrong.count else ""


def matrix() -> dict[str, Any]:
    """Run the matrix; the outcome, with what the control channel gave."""
    control = join(dict(os.environ), expect=2)
    engine = TorchEngine(
        control, SweepSpec(collective="reduce"), control.process, 0, control.process
    )
    engine.allocate(ROOM_BYTES, ROOM_BYTES)
    matrix = Matrix(engine, control)
    matrix.run()
    half = control.split(control.process)
    answer = {
        "total": control.reduce_all([control.process + 1.0, 1.0], "sum"),
        "parts": half.allgather(control.process),
        "name": control.bcast(f"from {control.process}"),
        "ranks": engine.size,
        "backend": engine.library().versions["backend"],
        "verified": matrix.verified,
        "wrong": [line for rank_wrongs in control.allgather(matrix.wrong) for line in rank_wrongs],
        "refused": matrix.refused,
        "refused alike": len({json.dumps(reasons) for reasons in control.allgather(matrix.refused)})
        == 1,
        "caught": control.allgather(matrix.caught),
        "devices": [
            device.rank
            for rank_devices in control.allgather(engine.devices())
            for device in rank_devices
        ],
    }
    engine.close()
    half.close()
    control.close()
    return answer
