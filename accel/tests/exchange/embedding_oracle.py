"""A table as a plain dictionary in fp64, with lookups and updates as in
busbw_accel.embedding.EmbeddingTable: what every row is compared with.
"""

from collections import Counter

import torch


class Oracle:
    """Never evicts, and has no limit."""

    def __init__(self, dim, settings, initial):
        """`initial`: the rows (fp32 [n, dim]) that ids (int64 [n]) begin with."""
        self.dim, self.settings, self.initial = dim, settings, initial
        self.kept: dict[int, dict[str, torch.Tensor]] = {}
        self.sightings: Counter[int] = Counter()
        self.updates = 0

    def lookup(self, ids):
        """The rows of ids, which may repeat, and the handle that `apply` takes."""
        distinct, inverse = torch.unique(ids, return_inverse=True)
        rows = self.initial(distinct).double()
        for at, identity in enumerate(distinct.tolist()):
            self.sightings[identity] += 1
            if identity not in self.kept and self.sightings[identity] >= self.settings.admission:
                self.kept[identity] = {"rows": rows[at].clone()}
            if identity in self.kept:
                rows[at] = self.kept[identity]["rows"]
        return rows[inverse], (distinct, inverse)

    def apply(self, handle, gradients):
        """One update of the rows of a lookup."""
        distinct, inverse = handle
        summed = torch.zeros(len(distinct), self.dim, dtype=torch.float64).index_add_(
            0, inverse, gradients.double()
        )
        self.updates += 1
        for identity, gradient in zip(distinct.tolist(), summed, strict=True):
            if identity in self.kept:
                kept, lr = self.kept[identity], self.settings.lr
                kept["rows"] *= 1 - lr * self.settings.weight_decay
                RULES[self.settings.optimizer](kept, gradient, lr, self.settings, self.updates)


def sgd(state, gradient, lr, settings, step):
    state["rows"] -= lr * gradient


def adam(state, gradient, lr, settings, step):
    """As torch.optim.SparseAdam, which corrects the bias by the number of updates of the table."""
    first, second = settings.betas
    state["moment"] = first * state.get("moment", 0) + (1 - first) * gradient
    state["square"] = second * state.get("square", 0) + (1 - second) * gradient**2
    root = (state["square"] / (1 - second**step)).sqrt()
    state["rows"] -= lr / (1 - first**step) * state["moment"] / (root + settings.eps)


RULES = {"sgd": sgd, "adam": adam}
