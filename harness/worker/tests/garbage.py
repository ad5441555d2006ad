"""Measures what one warm step leaves as garbage, for each variant of the headline case.

As a script it prints a table, so that a torch without pytest can be measured:
`PYTHONPATH=. python tests/garbage.py`.
"""

import gc
from collections import Counter
from types import FunctionType, SimpleNamespace

import torch
import torch._dynamo

from torchleak_worker.trainer import Llama3Trainer

LAYERS, BATCH, SEQ, DIM = 3, 2, 8, 64
RNG_STATE = 5056
ACTIVATION = BATCH * SEQ * DIM * 4
PRIVATE, PUBLIC = "torch._disable_dynamo", "torch.compiler.disable"


def program(
    *,
    mode="selective",
    policy="every-second-mm",
    early_stop=True,
    preserve_rng_state=True,
    disable=None,
    site="recompute-fn",
    block=None,
    **model,
) -> SimpleNamespace:
    """Return a small program; `model` overrides the model's sizes, and `dtype` and `optimizer`."""
    return SimpleNamespace(
        kind="llama3",
        dtype=model.pop("dtype", "float32"),
        optimizer=model.pop("optimizer", "sgd"),
        parallel="none",
        model=SimpleNamespace(
            **{
                "layers": LAYERS,
                "dim": DIM,
                "heads": 4,
                "kv_heads": 2,
                "head_dim": 16,
                "ffn_dim": 96,
                "share_weights": False,
                "vocab": None,
            }
            | model
        ),
        input=SimpleNamespace(batch=BATCH, seq=SEQ),
        checkpoint=SimpleNamespace(
            mode=mode, policy=policy, early_stop=early_stop, preserve_rng_state=preserve_rng_state
        ),
        compile=SimpleNamespace(disable=disable, site=site, block=block),
    )


VARIANTS = {
    "stock": (program(), 0),
    "private": (program(disable=PRIVATE), LAYERS * (ACTIVATION + RNG_STATE)),
    "public": (program(disable=PUBLIC), 0),
    "private, no early stop": (program(disable=PRIVATE, early_stop=False), LAYERS * RNG_STATE),
    "private, full": (program(disable=PRIVATE, mode="full"), LAYERS * RNG_STATE),
    "private, no checkpoint": (program(disable=PRIVATE, mode="none"), 0),
    "private, no RNG state": (program(disable=PRIVATE, preserve_rng_state=False), LAYERS * ACTIVATION),
    "private, all mm": (program(disable=PRIVATE, policy="all-mm"), LAYERS * (ACTIVATION + RNG_STATE)),
    "private, bfloat16": (
        program(disable=PRIVATE, dtype="bfloat16"),
        LAYERS * (ACTIVATION // 2 + RNG_STATE),
    ),
    "private, shared weights": (
        program(disable=PRIVATE, share_weights=True),
        LAYERS * (ACTIVATION + RNG_STATE),
    ),
    "private, vocabulary": (program(disable=PRIVATE, vocab=32), LAYERS * (ACTIVATION + RNG_STATE)),
    "private, AdamW": (program(disable=PRIVATE, optimizer="adamw"), LAYERS * (ACTIVATION + RNG_STATE)),
    "private, block forward": (program(disable=PRIVATE, site="block-forward"), 0),
    "public, block forward": (program(disable=PUBLIC, site="block-forward"), 0),
    "stock, full": (program(mode="full"), 0),
    "stock, no checkpoint": (program(mode="none"), 0),
    "stock, no checkpoint, vocabulary, AdamW": (program(mode="none", vocab=32, optimizer="adamw"), 0),
}


def of_warm_step(spec: SimpleNamespace, warmup: int = 2) -> dict:
    """Train and look at the garbage of the step after `warmup` ones.

    Returns:
        `bytes` of unique tensor storages, number of `objects`, their `types` and the qualified names of the
        `functions` among them, both with counts. The process is left with its collector off and its garbage
        kept: call it in a child.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.disable()
    # A collect would otherwise walk all of torch's million objects, in pages that a forked child must copy.
    gc.freeze()
    trainer = Llama3Trainer(spec, torch.device("cpu"))
    for _ in range(warmup):
        trainer.step()
    while gc.collect():
        pass
    gc.set_debug(gc.DEBUG_SAVEALL)
    trainer.step()
    gc.collect()
    storages = {}
    for found in gc.garbage:
        if isinstance(found, torch.Tensor):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return {
        "bytes": sum(storages.values()),
        "objects": len(gc.garbage),
        "types": dict(Counter(type(found).__name__ for found in gc.garbage)),
        "functions": dict(
            Counter(found.__qualname__ for found in gc.garbage if isinstance(found, FunctionType))
        ),
    }


if __name__ == "__main__":
    from forked import in_child

    print(torch.__version__)
    for name, (spec, expected) in VARIANTS.items():
        measured = in_child(of_warm_step, spec)
        agrees = "as expected" if measured["bytes"] == expected else f"EXPECTED {expected}"
        print(f"{name:40} {measured['bytes']:8} bytes {measured['objects']:5} objects  {agrees}")
