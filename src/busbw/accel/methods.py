"""The registry of codecs: one row for each, with everything that other code and the docs need to know. Imports no torch.

A new codec is a row here and a class in `busbw.accel.codecs`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecInfo:
    """The facts of one codec. `implementation` is its module in `busbw.accel.codecs`, a colon and its class."""

    name: str
    title: str
    implementation: str
    loss: int  # an index into core.planning.LOSSES
    meaning: str
    needs_matrices: bool = False  # cannot work on a shard or a piece, and sends one-dimensional parameters itself
    small: bool = False  # sends so little that one NCCL channel suffices (top-k: up to SMALL_RATIO)
    sparse: bool = False  # has a ratio and momentum correction
    warmup: bool = False  # uses warmup_steps
    staged: bool = True  # its data can be staged in host memory
    plan_with_host: bool = False  # `busbw plan` also tries it with host staging
    plan_variants: tuple[str, ...] = ("",)  # what `busbw plan` tries by default: settings added to the name


DENSE, TOPK = "dense", "topk"
CODECS = (
    CodecInfo(
        name=DENSE, title="dense", implementation="dense:Dense", loss=0, meaning="the whole gradient", staged=False, plan_variants=()
    ),
    CodecInfo(
        name="int8",
        title="int8",
        implementation="integers:Int8",
        loss=2,
        meaning="8-bit integers, one scale for 256 elements",
        plan_with_host=True,
    ),
    CodecInfo(
        name="int4",
        title="int4",
        implementation="integers:Int4",
        loss=5,
        meaning="4-bit integers, one scale for 256 elements",
        plan_with_host=True,
        plan_variants=("", "+last=powersgd+matrix_rank=16"),
    ),
    CodecInfo(
        name="powersgd",
        title="PowerSGD",
        implementation="powersgd:PowerSgd",
        loss=3,
        meaning="two narrow factors of each matrix",
        needs_matrices=True,
        small=True,
        warmup=True,
    ),
    CodecInfo(
        name=TOPK,
        title="top-k",
        implementation="topk:TopK",
        loss=4,
        meaning="the elements of the largest magnitude",
        small=True,
        sparse=True,
        warmup=True,
        plan_variants=("+ratio=0.1", ""),
    ),
)
BY_NAME = {codec.name: codec for codec in CODECS}
NAMES = tuple(BY_NAME)
COMPRESSING = NAMES[1:]


def titles(fact: str) -> str:
    """The titles of the codecs that have a fact, for an error message."""
    return " and ".join(codec.title for codec in CODECS if getattr(codec, fact))
