"""Training that survives lost ranks: in an elastic job the others go on, and torchrun restarts all.

Both from the last commit.
"""

from busbw.horovod.torch.elastic.base import State
from busbw.horovod.torch.elastic.run import run, run_fn
from busbw.horovod.torch.elastic.sampler import ElasticSampler
from busbw.horovod.torch.elastic.state import ObjectState, TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run", "run_fn"]
