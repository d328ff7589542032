"""A small model with an offloaded AdamW beside a plain AdamW over fp32 weights that gets the
same gradients; copies that take time.
"""

import os
import queue
import random
import threading
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from busbw_accel import offload
from busbw_accel.offloading import copy_streams

WIDTH, TOKENS = 48, 37
DEVICE = torch.device(os.environ.get("ACCEL_DEVICE", "cpu"))
# PyTorch's fused AdamW on a GPU computes 1 - beta2 in fp32: the second moment is 1.3e-5 low, and
# each update 6e-6 off.
FUSED_WITHIN = 1e-5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
        )

    def forward(self, inputs):
        return inputs + self.down(nn.functional.gelu(self.up(self.norm(inputs))))


class Net(nn.Module):
    """Tied weights, blocks in a ModuleList, and with `bare` a list of weights that no forward of
    its members uses.
    """

    def __init__(self, recompute=False, bare=True):
        super().__init__()
        self.tokens, self.blocks = (
            nn.Embedding(TOKENS, WIDTH),
            nn.ModuleList(Block() for _ in range(3)),
        )
        self.bare = nn.ModuleList(
            [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)] if bare else []
        )
        self.recompute = recompute

    def forward(self, inputs):
        hidden = self.tokens(inputs)
        for layer in self.bare:
            hidden = hidden @ layer.weight + layer.bias
        for block in self.blocks:
            hidden = (
                checkpoint(block, hidden, use_reentrant=False) if self.recompute else block(hidden)
            )
        return hidden @ self.tokens.weight.T


def groups(net):
    matrices = [parameter for parameter in net.parameters() if parameter.dim() > 1]
    return [
        {"params": matrices, "weight_decay": 0.1},
        {
            "params": [parameter for parameter in net.parameters() if parameter.dim() < 2],
            "lr": 3e-3,
        },
    ]


class Pair:
    """A model with an offloaded AdamW, and a plain AdamW over fp32 copies of its weights that
    gets the same gradients.
    """

    def __init__(self, seed=1, recompute=False, quiet="", **options):
        """`quiet`: a parameter whose gradients are made small."""
        torch.manual_seed(seed)
        self.net = Net(recompute, bare=not options.get("stream_weights")).to(DEVICE)
        self.plain = {
            name: nn.Parameter(parameter.detach().clone())
            for name, parameter in self.net.named_parameters()
        }
        self.reference = torch.optim.AdamW(groups(Named(self.plain)), lr=1e-2)
        self.gradients = {}
        self.optimizer = offload(
            self.net,
            torch.optim.AdamW(groups(self.net), lr=1e-2),
            **{"max_norm": None, "threads": 2} | options,
        )
        self.max_norm = options.get("max_norm")
        for name, parameter in self.net.named_parameters():
            if name == quiet:
                parameter.register_hook(lambda gradient: gradient * 1e-3)
            parameter.register_hook(lambda gradient, name=name: self._see(name, gradient))

    def _see(self, name, gradient):
        self.gradients[name] = (
            gradient.clone() if name not in self.gradients else (self.gradients[name] + gradient)
        )

    def loss(self, seed, factor=1.0):
        tokens = torch.randint(TOKENS, (2, 9), generator=torch.Generator().manual_seed(seed)).to(
            DEVICE
        )
        return (
            nn.functional.cross_entropy(
                self.net(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()
            )
            * factor
        )

    def step(self, seed, batches=1, factor=1.0):
        self.gradients.clear()
        for number in range(batches - 1):
            with self.optimizer.accumulate():
                self.loss(100 * seed + number).backward()
        self.loss(seed, factor).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, parameter in self.plain.items():
            parameter.grad = self.gradients[name].float() if name in self.gradients else None
        if self.max_norm:
            nn.utils.clip_grad_norm_(self.plain.values(), self.max_norm)
        self.reference.step()

    def check(self, within=1e-6):
        weights = self.optimizer.weights()
        fused = {
            parameter.name
            for parameter in self.optimizer.parameters
            if parameter.on_device and DEVICE.type == "cuda"
        }
        for name, parameter in self.plain.items():
            bound = max(within, FUSED_WITHIN) if name in fused else within
            assert (
                weights[name].to(DEVICE) - parameter.detach()
            ).norm() < bound * parameter.detach().norm(), name
            assert torch.equal(
                self.net.state_dict()[name].to(DEVICE), weights[name].to(DEVICE).bfloat16()
            ), name


class Named:
    def __init__(self, named):
        self._named = named

    def parameters(self):
        return self._named.values()


class Later(copy_streams.StartedCopy):
    """A copy that a thread makes later."""

    def __init__(self):
        self.made = threading.Event()

    def done(self):
        return self.made.is_set()

    def wait(self):
        assert self.made.wait(30)

    hold_stream = wait

    def seconds(self):
        return 0.0


class LateLane(copy_streams.Lane):
    """Makes copies in their order but later, as a GPU does."""

    def __init__(self, device):
        super().__init__(device)
        self.jobs, self.last = queue.Queue(), None
        self.random = random.Random(1)
        threading.Thread(target=self.make, daemon=True).start()

    def make(self):
        while True:
            target, source, later = self.jobs.get()
            time.sleep(self.random.random() * 1e-3)
            target.copy_(source)
            later.made.set()

    def copy(self, target, source):
        self.last = Later()
        self.jobs.put((target, source, self.last))
        return self.last

    def finish(self):
        if self.last is not None:
            self.last.wait()

    hold_current = finish


def two_layers():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(DEVICE)


def ones():
    return torch.ones(2, 8, device=DEVICE, dtype=torch.bfloat16)
