"""The registry of codecs: one row for each, with all facts that other code and the docs use.

A new codec is a row here and a class in `busbw_accel.codecs`. Imports no torch.
"""

from dataclasses import dataclass

# Indices into train.plan_types.LOSSES, the least loss first. They are not in order: results
# contain the indices, so new losses are appended.
LEAST_FIRST = (0, 1, 2, 5, 3, 4, 6)
APART = 6  # of local steps, whatever their codec loses
DENSE, TOPK = "dense", "topk"
BLOCK = 256  # elements per scale of int8 and int4
_BLOCKS = f"integers, one scale for {BLOCK} elements"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecInfo:
    """The facts of one codec."""

    name: str
    implementation: str  # its module in `busbw_accel.codecs`, a colon and its class
    loss: int  # an index into train.plan_types.LOSSES
    meaning: str
    title: str = ""  # for error messages, where it differs from the name
    # It cannot work on a shard or a piece, and sends one-dimensional parameters itself.
    needs_matrices: bool = False
    # It sends so little that one NCCL channel suffices (top-k: up to SMALL_RATIO).
    small: bool = False
    # It has `reduce_scatter` and `all_gather`, so that it can exchange the shards of fully_shard.
    shards: bool = False
    sparse: bool = False  # it has a ratio and momentum correction
    warmup: bool = False  # it uses warmup_steps
    staged: bool = True  # its data can be staged in host memory
    plan_with_host: bool = False  # `busbw plan` also tries it with host staging
    # The settings with which `busbw plan` tries it by default, as added to the name.
    plan_variants: tuple[str, ...] = ("",)


CODECS = (
    CodecInfo(
        name=DENSE,
        implementation="dense:Dense",
        loss=0,
        shards=True,
        meaning="the whole gradient",
        staged=False,
        plan_variants=(),
    ),
    CodecInfo(
        name="exact",
        implementation="exact:Exact",
        loss=0,
        shards=True,
        meaning="the whole gradient, its exponents coded",
        plan_with_host=True,
    ),
    CodecInfo(
        name="int8",
        implementation="integers:Int8",
        loss=2,
        shards=True,
        meaning=f"8-bit {_BLOCKS}",
        plan_with_host=True,
    ),
    CodecInfo(
        name="int4",
        implementation="integers:Int4",
        loss=5,
        shards=True,
        meaning=f"4-bit {_BLOCKS}",
        plan_with_host=True,
        plan_variants=("", "+last=powersgd+matrix_rank=16"),
    ),
    CodecInfo(
        name="powersgd",
        title="PowerSGD",
        implementation="powersgd:PowerSgd",
        loss=3,
        needs_matrices=True,
        small=True,
        warmup=True,
        meaning="two narrow factors of each matrix",
    ),
    CodecInfo(
        name=TOPK,
        title="top-k",
        implementation="topk:TopK",
        loss=4,
        small=True,
        sparse=True,
        warmup=True,
        plan_variants=("+ratio=0.1", ""),
        meaning="the elements of the largest magnitude",
    ),
)
BY_NAME = {codec.name: codec for codec in CODECS}
NAMES = tuple(BY_NAME)


def titles(fact: str) -> str:
    """The titles of the codecs for which this field of CodecInfo is true, for an error message."""
    return " and ".join(codec.title or codec.name for codec in CODECS if getattr(codec, fact))
