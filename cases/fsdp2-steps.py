"""The control of fsdp2-del-model: one fully_shard model is trained step by step.

What FSDP refers to itself with is made once, so nothing is added by a step.
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
    mesh = init_device_mesh("cpu", (1,))
    linear = ctx.torch.nn.Linear
    model = ctx.torch.nn.Sequential(*(linear(FEATURES, FEATURES, dtype=ctx.dtype) for _ in range(2)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model):
    weight = next(model.parameters())
    loss = model(weight.to_local().new_ones(FEATURES, FEATURES)).sum()
    loss.backward()
    model.zero_grad(set_to_none=True)
    time.sleep(MOMENT)
    return loss
