"""Distributes the remaining samples of an epoch evenly over the current ranks."""

import math
import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from torch.utils.data import Sampler

from busbw_accel.horovod.torch import context


class ElasticSampler(Sampler[int]):  # type: ignore[misc]
    """The indices of this rank's samples.

    Each sample is used once per epoch, except for those that are repeated to make shares even.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """`seed` must be the same on all ranks."""
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples that all ranks together have processed in this epoch
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch. Call it at the end of the previous one."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that each rank has processed a batch."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the number of samples processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Distribute the remaining samples over the current ranks."""
        self.num_replicas, self.rank = context.size(), context.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """This rank's indices. Some are repeated so that shares are even."""
        remaining = self.remaining_indices
        even = [remaining[number % len(remaining)] for number in range(self.total_size)]
        return iter(even[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
