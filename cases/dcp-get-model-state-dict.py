"""``get_model_state_dict`` keeps the model that it was asked about, though the model is dropped at each step.

Until torch 2.7 a cache of names has the model among its keys. Since 2.8 only the generator that walks the
model stays: it recurses through a closure over itself and over the modules that it has visited.
"""

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

FEATURES = 512


def setup(ctx):
    return ctx


def step(ctx):
    model = ctx.torch.nn.Linear(FEATURES, FEATURES, bias=False, device=ctx.device, dtype=ctx.dtype)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return state["weight"].sum()
