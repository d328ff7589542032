"""`elastic_on_gpus.py FOLDER`: an elastic training on GPUs.

Rank 0 of the first world kills itself after step 20, in the middle of a step.

Without GPUs it runs on CPUs.
"""

import os
import signal
import sys
from pathlib import Path

import horovod.torch as hvd
import torch

BEFORE, STEPS = 20, 60
folder = Path(sys.argv[1])
hvd.init()
gpus = torch.cuda.device_count()
device = torch.device("cuda", hvd.local_rank() % gpus) if gpus else torch.device("cpu")
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(1024, 1024).to(device)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.5),
    named_parameters=model.named_parameters(),
)
state = hvd.elastic.TorchState(model, optimizer, step=0)


@hvd.elastic.run
def train(state):
    """Steps until STEPS are committed."""
    while state.step < STEPS:
        optimizer.zero_grad()
        loss = model(torch.full((8, 1024), hvd.rank() + 1.0, device=device)).sum()
        if state.step == BEFORE and hvd.rank() == 0 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        state.step += 1
        state.commit()


train(state)
same = hvd.allgather(model.weight.detach().sum().reshape(1)).unique().numel() == 1
sys.stdout.write(f"end {hvd.rank()} {hvd.size()} {state.step} {same} {device.type}\n")
hvd.shutdown()
