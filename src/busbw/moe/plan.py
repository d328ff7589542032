"""One rank's part of a dispatch: which rows it sends and receives, and which experts take them."""

from dataclasses import dataclass

import numpy as np

from busbw.moe.draws import Array
from busbw.moe.volumes import destinations

STRIDE = 1 << 24  # more tokens than a rank has: row t of rank r has the number r x STRIDE + t


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Rows that are sent are in order of receiver and token, those received of sender and token.

    Rows of experts are in order of the expert, and within one as received.
    """

    sent_tokens: Array  # the token of each row that is sent
    sent: list[int]  # rows to each rank
    received: list[int]  # rows from each rank
    received_numbers: Array  # the number of each row that is received
    expert_rows: Array  # the place among the received rows of each row of an expert
    expert_ids: Array  # its expert
    own_ids: Array  # the experts of the rank's own tokens: [token, choice]


def rank_plan(ids: Array, experts: int, rank: int) -> RankPlan:
    """The part of `rank`; `ids` are the experts of all tokens: [rank, token, choice]."""
    ranks = len(ids)
    goes = destinations(ids, experts)
    _, sent_tokens = np.nonzero(goes[rank].T)
    senders, tokens = np.nonzero(goes[:, :, rank])
    places = goes[:, :, rank].cumsum().reshape(goes.shape[:2]) - 1
    of_sender, of_token, choice = np.nonzero(ids // (experts // ranks) == rank)
    chosen = ids[of_sender, of_token, choice]
    order = np.argsort(chosen, kind="stable")
    return RankPlan(
        sent_tokens=sent_tokens,
        sent=goes[rank].sum(axis=0).tolist(),
        received=goes[:, :, rank].sum(axis=1).tolist(),
        received_numbers=senders * STRIDE + tokens,
        expert_rows=places[of_sender, of_token][order],
        expert_ids=chosen[order],
        own_ids=ids[rank],
    )
