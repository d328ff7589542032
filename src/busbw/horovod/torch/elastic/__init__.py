"""Training that survives lost ranks: in an elastic job the others go on, and torchrun restarts all. Both from the last commit."""

from busbw.horovod.torch.elastic.run import run
from busbw.horovod.torch.elastic.sampler import ElasticSampler
from busbw.horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]
