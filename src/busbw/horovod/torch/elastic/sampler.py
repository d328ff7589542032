"""The samples of an epoch that no rank has had, dealt out evenly over the ranks that there are now."""

import math
import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from torch.utils.data import Sampler

from busbw.horovod.torch import context


class ElasticSampler(Sampler[int]):  # type: ignore[misc]
    """Indices of this rank; in an epoch all ranks see each sample once, save for what makes their shares even."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """`seed` has to be the same on all ranks."""
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples that all ranks together have had in this epoch
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; to be called at the end of the one before."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Each rank has had a batch."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deal what is left out to the ranks that there are now."""
        self.num_replicas, self.rank = context.size(), context.rank()
        every = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(every)
        self.remaining_indices = every[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        """This rank's indices; some come twice where shares would not be even."""
        left = self.remaining_indices
        total = self.num_samples * self.num_replicas
        even = [left[number % len(left)] for number in range(total)]
        return iter(even[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        """How many they are."""
        return self.num_samples
