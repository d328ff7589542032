import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
r = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(r)
torch.manual_seed(0)
layer = lambda: torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 1024), *[layer() for _ in range(8)], torch.nn.Linear(1024, 64)
).cuda(r)
model = DDP(model, device_ids=[r])
opt = torch.optim.AdamW(model.parameters(), 1e-4)
x = torch.randn(16, 256, 64, device=r)
for step in range(int(os.environ.get("STEPS", "200"))):
    opt.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = (model(x) - x).square().mean()
    loss.backward()
    opt.step()
torch.cuda.synchronize()
print("done", step + 1, float(loss)) if r == 0 else None
dist.destroy_process_group()
