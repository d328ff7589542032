"""A table as a plain dictionary in fp64, with lookups and updates as in
busbw.accel.embedding.Table: what every row is compared with.
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


def sgd(kept, gradient, lr, settings, step):
    kept["rows"] -= lr * gradient


def adam(kept, gradient, lr, settings, step):
    """As torch.optim.SparseAdam, which corrects the bias by the number of updates of the table."""
    _adam(kept, gradient, gradient**2, lr, settings, step)


def rowwise_adam(kept, gradient, lr, settings, step):
    """One second moment for the row: of the mean square of its gradient."""
    _adam(kept, gradient, (gradient**2).mean(), lr, settings, step)


def rowwise_adagrad(kept, gradient, lr, settings, step):
    kept["square"] = kept.get("square", 0) + (gradient**2).mean()
    kept["rows"] -= lr * gradient / (kept["square"].sqrt() + settings.eps)


def _adam(kept, gradient, squared, lr, settings, step):
    first, second = settings.betas
    kept["moment"] = first * kept.get("moment", 0) + (1 - first) * gradient
    kept["square"] = second * kept.get("square", 0) + (1 - second) * squared
    root = (kept["square"] / (1 - second**step)).sqrt()
    kept["rows"] -= lr / (1 - first**step) * kept["moment"] / (root + settings.eps)


RULES = {"sgd": sgd, "adam": adam, "rowwise_adam": rowwise_adam, "rowwise_adagrad": rowwise_adagrad}
