"""Trainings that go on when ranks are lost, as far as torchrun carries them: it starts all ranks again, and the last commit is read."""

from busbw.horovod.torch.elastic.run import run
from busbw.horovod.torch.elastic.sampler import ElasticSampler
from busbw.horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]
