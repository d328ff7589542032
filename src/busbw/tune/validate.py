"""Which sweeps can be tuned."""

from itertools import islice

from busbw.core.errors import UsageError
from busbw.core.sweep import SweepSpec, check_spec, dtypes, redops, sizes
from busbw.core.tuning import TUNED

MOST_SIZES = 64


def planned(spec: SweepSpec) -> int:
    """The number of sizes.

    UsageError if NCCL has no choice for the collective, or for several types or operations or over
    64 sizes.
    """
    if spec.collective not in TUNED:
        raise UsageError(
            f"{spec.collective}: NCCL has no choice of algorithms for it",
            f"tune {', '.join(TUNED)}",
        )
    check_spec(spec, strict=True)
    for what, values in (("datatype", dtypes(spec)), ("op", redops(spec))):
        if len(values) > 1:
            raise UsageError(
                f"--{what} {getattr(spec, what)}: a tuning is of one",
                f"name one, like busbw tune {spec.collective} -d float -o sum",
            )
    count = len(list(islice(sizes(spec, spec.max_bytes), MOST_SIZES + 1)))
    if count > MOST_SIZES:
        raise UsageError(
            f"more than {MOST_SIZES} sizes: a tuning measures at most {MOST_SIZES}",
            "give a larger --stepfactor",
        )
    return count
