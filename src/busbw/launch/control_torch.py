"""The control channel over Gloo, for ranks that torchrun started.

It is separate from torch.distributed's default group, which the torch engine measures. Importing
this module imports torch.
"""

import itertools
import os
import pickle
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.errors import NoMeasurement, first_line
from busbw.launch import interfaces
from busbw.launch.environment import Membership

LIMIT = timedelta(minutes=30)  # of a collective; longer than any measurement between two of them
JOIN_LIMIT = timedelta(minutes=2)
# Numbers of this process's joins: torchrun's store keeps the addresses of earlier ones.
_NUMBERS = itertools.count()
_OPS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class TorchControl:
    """The ranks of one Gloo group."""

    def __init__(self, store: dist.Store, process: int, processes: int, name: str) -> None:
        self.process, self.processes = process, processes
        self.library = f"PyTorch {torch.__version__}"
        self._store, self._name, self._splits = store, name, 0
        self._group = dist.ProcessGroupGloo(
            dist.PrefixStore(name, store), process, processes, LIMIT
        )

    @classmethod
    def join(cls, member: Membership) -> "TorchControl":
        """The channel of all ranks of the job, which meet at the store at MASTER_ADDR.

        NoMeasurement after JOIN_LIMIT.
        """
        interfaces.name_for_gloo(os.environ.get("MASTER_ADDR", ""))
        try:
            store, process, processes = next(dist.rendezvous("env://", timeout=JOIN_LIMIT))
            return cls(store, process, processes, f"busbw{next(_NUMBERS)}")
        except (RuntimeError, ValueError) as error:
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise NoMeasurement(
                f"rank {member.rank} of {member.size} could not meet the others at {where}:"
                f" {first_line(error)}",
                "MASTER_ADDR must resolve on every host and MASTER_PORT be open; GLOO_SOCKET_IFNAME"
                " names the interface",
            ) from error

    def allgather(self, value: Any) -> list[Any]:
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = self._gather(torch.tensor([data.numel()]))
        longest = max(int(length.item()) for length in lengths)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: data.numel()] = data
        # Only ranks of this job have the store, so the pickles come from the same program.
        return [pickle.loads(bytes(received.tolist())) for received in self._gather(padded)]

    def bcast(self, value: Any) -> Any:
        return self.allgather(value if self.process == 0 else None)[0]

    def gather(self, value: Any) -> list[Any] | None:
        values = self.allgather(value)
        return values if self.process == 0 else None

    def barrier(self) -> None:
        self._group.barrier().wait()

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[how]
        self._group.allreduce([tensor], options).wait()
        return [float(value) for value in tensor.tolist()]

    def split(self, color: int) -> "TorchControl":
        colors = self.allgather(color)
        members = [process for process, other in enumerate(colors) if other == color]
        self._splits += 1
        return TorchControl(
            self._store,
            members.index(self.process),
            len(members),
            f"{self._name}/{self._splits}.{color}",
        )

    def abort(self, code: int, reason: str) -> None:
        """Exit immediately. torchrun then ends the others and exits with 1, whatever `code` is."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def close(self) -> None:
        """Wait for the others: the store lives in rank 0's process."""
        self.barrier()

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.processes)]
        self._group.allgather([parts], [tensor]).wait()
        return parts
