"""Training that survives lost ranks.

In an elastic job the other ranks continue, and under torchrun all ranks are restarted. Both
continue from the last commit.
"""

from busbw_accel.horovod.torch.elastic.base import State
from busbw_accel.horovod.torch.elastic.run import run, run_fn
from busbw_accel.horovod.torch.elastic.sampler import ElasticSampler
from busbw_accel.horovod.torch.elastic.state import ObjectState, TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run", "run_fn"]
