"""Several features in one table: the number of the feature becomes part of the id."""

import torch

from busbw.core.errors import UsageError

FEATURE_BITS = 15  # above them is the sign
ID_BITS = 63 - FEATURE_BITS


def prefixed(ids: torch.Tensor, feature: int) -> torch.Tensor:
    """Ids that differ from those of every other feature: feature * 2**48 + id.

    A data loader calls it, before the ids go to a GPU.

    Raises:
        UsageError: the feature is not in 0 .. 32767, or an id is not in 0 .. 2**48 - 1.
    """
    if not 0 <= feature < 1 << FEATURE_BITS:
        raise UsageError(
            f"feature is {feature}, and must be at least 0 and below {1 << FEATURE_BITS}",
            "number the features from 0",
        )
    outside = (ids >> ID_BITS) != 0
    if outside.any():
        first = int(ids[outside][0])
        raise UsageError(
            f"id {first} of feature {feature} is not in 0 .. 2**{ID_BITS} - 1",
            f"hash it to {ID_BITS} bits, or use a table of its own",
        )
    return ids.to(torch.int64) + (feature << ID_BITS)
