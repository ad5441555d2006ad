"""A fully_shard model is trained for one step and dropped.

The state of FSDP sits on the module and refers back to it.
"""

import time

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FEATURES = 512

# gloo's threads let go of the last buffers a moment after they say that they are done.
MOMENT = 0.02


def setup(ctx):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    ctx.mesh = init_device_mesh("cpu", (1,))
    return ctx


def step(ctx):
    torch = ctx.torch
    model = torch.nn.Linear(FEATURES, FEATURES, bias=False, dtype=ctx.dtype)
    fully_shard(model, mesh=ctx.mesh)
    loss = model(torch.ones(2, FEATURES, dtype=ctx.dtype)).sum()
    loss.backward()
    time.sleep(MOMENT)
    return loss
