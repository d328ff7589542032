"""The reduction operators, one row each, in the order in which nccl-tests' `-o all` runs them."""

from dataclasses import dataclass

from busbw.core.errors import unknown


@dataclass(frozen=True, slots=True)
class RedOp:
    """One reduction operator; `nccl` is its ncclRedOp_t, None if NCCL creates it per
    communicator (mulsum).
    """

    name: str
    nccl: int | None
    meaning: str
    aliases: tuple[str, ...] = ()


REDOPS: tuple[RedOp, ...] = (
    RedOp("sum", 0, "sum over ranks", ("add",)),
    RedOp("prod", 1, "product over ranks", ("product", "mul")),
    RedOp("min", 3, "minimum over ranks"),
    RedOp("max", 2, "maximum over ranks"),
    RedOp("avg", 4, "sum over ranks divided by their number", ("mean", "average")),
    RedOp(
        "mulsum",
        None,
        "sum after each rank multiplies by its scalar: 1 on even ranks, 2 on odd ranks",
        ("premulsum",),
    ),
)

BY_NAME: dict[str, RedOp] = {name: row for row in REDOPS for name in (row.name, *row.aliases)}


def redop(name: str) -> RedOp:
    """The row for `name`; UsageError for an unknown name."""
    row = BY_NAME.get(name.lower())
    if row is None:
        names = {spelling: row.name for spelling, row in BY_NAME.items()}
        raise unknown("reduction operator", name, names, "--op: ", ", or all")
    return row
