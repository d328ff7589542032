"""Prints the bytes that each way of busbw_accel.sparse sends, by the number of ranks, for a table
of 1,000,000 x 64 in fp32.

Each rank draws ids from a Zipf distribution. The table in the module's docstring is from here.
"""

import torch

from busbw_accel.sparse import OWNERS, predicted_bytes

ROWS, ROW_BYTES = 1_000_000, 4 * 64 + 4
RANKS = ((2, 2), (4, 4), (8, 8), (16, 16), (64, 64), (16, 2), (64, 8))  # ranks, hosts
EXPONENTS, DRAWS = (0.0, 0.8, 1.05), (16_384, 65_536, 262_144)


def main() -> None:
    """One line per distribution, draws of a rank, and number of ranks."""
    torch.manual_seed(0)
    print(
        "exponent   draws ranks hosts  of rows   gather MB  owners MB   dense MB  less than the"
        " others"
    )
    for exponent in EXPONENTS:
        reach = torch.arange(1, ROWS + 1, dtype=torch.float64).pow(-exponent).cumsum(0)
        for draws in DRAWS:
            drawn = [
                torch.searchsorted(
                    reach, torch.rand(draws, dtype=torch.float64) * reach[-1]
                ).unique()
                for _ in range(64)
            ]
            for ranks, hosts in RANKS:
                counts, distinct = (
                    [len(one) for one in drawn[:ranks]],
                    len(torch.cat(drawn[:ranks]).unique()),
                )
                sent = predicted_bytes(counts, ROWS, distinct, ROW_BYTES, ROW_BYTES, hosts)
                others = min(nbytes for way, nbytes in sent.items() if way != OWNERS)
                megabytes = "".join(f"{nbytes / 1e6:11.1f}" for nbytes in sent.values())
                share = max(counts) / ROWS
                print(
                    f"{exponent:8} {draws:7} {ranks:5} {hosts:5} {share:8.1%} {megabytes}"
                    f" {others / sent[OWNERS]:8.2f}x"
                )


if __name__ == "__main__":
    main()
