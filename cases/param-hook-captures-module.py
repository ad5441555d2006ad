"""A parameter's hook reaches the module that owns the parameter, and the module is rebuilt at each step.

The hook's closure holds the module, the module its parameter, and the parameter its hook.
"""

FEATURES = 512


def setup(ctx):
    return ctx


def step(ctx):
    torch = ctx.torch
    module = torch.nn.Linear(FEATURES, FEATURES, bias=False, device=ctx.device, dtype=ctx.dtype)
    module.weight.register_hook(lambda grad: grad if module.training else None)
    loss = module(torch.ones(2, FEATURES, device=ctx.device, dtype=ctx.dtype)).sum()
    loss.backward()
    return loss
