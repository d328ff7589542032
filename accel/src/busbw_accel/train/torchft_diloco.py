"""torchft's DiLoCo as a method of `busbw train`, to compare busbw_accel's local steps with.

torchft (https://github.com/meta-pytorch/torchft) restarts groups of ranks one by one. Each of its
groups has a Manager, and all Managers ask a lighthouse before an exchange which groups take part.
Here each rank is a group of its own, all of them take part, and rank 0 runs the lighthouse. An
exchange that fails ends the run: torchft would go on without it.
"""

import os
import platform
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from busbw.core.errors import NoMeasurement, UsageError
from busbw.engines.torch_rank import SETUP_LIMIT, store_address
from busbw_accel.settings import Settings
from busbw_accel.train.methods import TORCHFT_DILOCO, TORCHFT_EVERY


def check(precision: str) -> None:
    """Raises:
    NoMeasurement: torchft is not installed.
    UsageError: torchft cannot train in this precision.
    """
    if precision == "fp16":
        raise UsageError(
            f"{TORCHFT_DILOCO} cannot train in fp16: it counts the steps that the GradScaler skips"
            " on one rank alone",
            "--compute-dtype bf16",
        )
    # Its servers, which are in Rust, print each request otherwise.
    os.environ.setdefault("RUST_LOG", "warn")
    try:
        import torchft.local_sgd  # noqa: F401
    except ImportError as error:
        raise NoMeasurement(
            f"torchft is not installed ({error})",
            f"pip install torchft on all hosts, or leave out {TORCHFT_DILOCO}",
        ) from error


class Diloco:
    """What torchft needs on this rank, from the making until `close`. All ranks call both."""

    def __init__(
        self, net: nn.Module, device: torch.device, optimizer: torch.optim.Optimizer
    ) -> None:
        """Make the steps of `optimizer` those of DiLoCo. Rank 0's parameters are taken.

        The outer optimizer is that of `Settings(every=...)`, the mean of the parameters.
        """
        from torchft.coordination import LighthouseServer
        from torchft.local_sgd import DiLoCo
        from torchft.process_group import ProcessGroupGloo, ProcessGroupNCCL

        for tensor in net.state_dict().values():
            dist.broadcast(tensor, 0)
        address = store_address(len(set(_gathered(platform.node()))))
        first = dist.get_rank() == 0
        self._lighthouse = (
            LighthouseServer(bind="[::]:0", min_replicas=dist.get_world_size()) if first else None
        )
        # The lighthouse names its host, not the interface of the run.
        port = self._lighthouse.address().rpartition(":")[2] if self._lighthouse else ""
        host, port = _gathered((address, port))[0]
        self._store = dist.TCPStore(address, 0, 1, True, SETUP_LIMIT, wait_for_workers=False)
        self._group = (ProcessGroupNCCL if device.type == "cuda" else ProcessGroupGloo)(SETUP_LIMIT)
        self._manager = self._managed(address, f"http://{host}:{port}")
        settings = Settings()
        outer = torch.optim.SGD(
            net.parameters(), lr=settings.outer_lr, momentum=settings.outer_momentum
        )
        self._diloco = DiLoCo(self._manager, [net], optimizer, outer, sync_every=TORCHFT_EVERY)
        self._diloco.__enter__()

    def _managed(self, address: str, lighthouse: str) -> Any:
        """The Manager of this rank's group."""
        from torchft.manager import Manager

        return Manager(
            pg=self._group,
            load_state_dict=None,
            state_dict=None,
            min_replica_size=dist.get_world_size(),
            use_async_quorum=False,
            timeout=SETUP_LIMIT,
            quorum_timeout=SETUP_LIMIT,
            connect_timeout=SETUP_LIMIT,
            rank=0,
            world_size=1,
            store_addr=address,
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"rank_{dist.get_rank():05}",  # its order is that of the ring
            hostname=address,
            init_sync=False,
            max_retries=0,
        )

    def close(self) -> None:
        """End all servers."""
        self._diloco.__exit__(None, None, None)
        self._manager.shutdown()
        self._group.shutdown()
        dist.barrier()  # Managers use the lighthouse, and groups the stores, until they end
        if self._lighthouse is not None:
            self._lighthouse.shutdown()


def _gathered(value: Any) -> list[Any]:
    """The values of all ranks."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
