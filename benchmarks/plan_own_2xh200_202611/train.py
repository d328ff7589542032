"""A transformer under DistributedDataParallel on GPUs, started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS = 1024, 8

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
layers = [
    nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, dropout=0.0)
    for _ in range(LAYERS)
]
model = nn.Sequential(nn.Linear(64, WIDTH), *layers, nn.Linear(WIDTH, 64)).cuda(rank)
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
samples = torch.randn(16, 256, 64, device=rank)
for _ in range(200):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = (model(samples) - samples).square().mean()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
