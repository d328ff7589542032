"""A small transformer under DistributedDataParallel on CPUs, started by torchrun or by mpirun.

SETTINGS='{"method": "powersgd"}' attaches a method, as the plan recommends.
"""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, VOCABULARY, SEQUENCE, BATCH = 256, 4096, 64, 4

if "OMPI_COMM_WORLD_RANK" in os.environ:
    os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    """Four layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, sequence] -> scores [batch, sequence, vocabulary]."""
        scores: torch.Tensor = self.head(self.body(self.embedding(tokens)))
        return scores


model = DistributedDataParallel(Net(), bucket_cap_mb=4)
if os.environ.get("SETTINGS"):
    import busbw.accel

    busbw.accel.attach(model, busbw.accel.Settings(**json.loads(os.environ["SETTINGS"])))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(100_000):
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
