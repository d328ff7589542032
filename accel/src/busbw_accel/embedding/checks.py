"""Checks of the input of a table: ids, gradients, and chunks of saved rows."""

from collections.abc import Mapping

import torch

from busbw.core.errors import UsageError
from busbw_accel.embedding.optimizers import RecordLayout

MAX_IDS = 1 << 28  # of a lookup


def check_ids(ids: torch.Tensor, device: torch.device) -> None:
    """Raise UsageError unless ids are int64, one-dimensional, contiguous and on the device."""
    right_form = ids.dtype == torch.int64 and ids.dim() == 1 and ids.is_contiguous()
    if not right_form or ids.device != device:
        actual = f"{ids.dtype} {list(ids.shape)} on {ids.device}"
        if not ids.is_contiguous():
            actual += ", not contiguous"
        raise UsageError(
            f"ids are {actual}", f"torch.int64, one-dimensional and contiguous, on {device}"
        )
    if len(ids) > MAX_IDS:
        raise UsageError(f"a lookup of {len(ids)} ids", f"look up at most {MAX_IDS} at a time")


def check_gradients(gradients: torch.Tensor, ids: torch.Tensor, dim: int) -> None:
    """Raise UsageError unless gradients are [ids, dim] in fp32 on the device of the ids."""
    shape = (len(ids), dim)
    if (
        tuple(gradients.shape) != shape
        or gradients.dtype != torch.float32
        or gradients.device != ids.device
    ):
        actual = f"{gradients.dtype} {list(gradients.shape)} on {gradients.device}"
        raise UsageError(f"gradients are {actual}", f"torch.float32 {list(shape)} on {ids.device}")


def checked_ids(
    chunk: Mapping[str, torch.Tensor], form: RecordLayout, device: torch.device
) -> torch.Tensor:
    """The ids of a chunk of saved rows, on the device.

    Raises:
        UsageError: a tensor of the chunk is missing or has another shape, or ids repeat.
    """
    count = len(chunk["ids"]) if "ids" in chunk else 0
    shapes = {"ids": (count,), "rows": (count, form.dim), "score": (count,)}
    shapes |= dict.fromkeys(form.states, (count, form.dim))
    shapes |= dict.fromkeys(form.rowwise, (count,))
    for name, shape in shapes.items():
        actual = tuple(chunk[name].shape) if name in chunk else None
        if actual != shape:
            raise UsageError(
                f"'{name}' of a chunk is {'missing' if actual is None else list(actual)}",
                f"its shape must be {list(shape)}",
            )
    ids = chunk["ids"].to(device)
    check_ids(ids, device)
    distinct = len(ids.unique())
    if distinct != count:
        raise UsageError(
            f"{count} ids of a chunk with {distinct} different ones", "load each id once"
        )
    return ids
