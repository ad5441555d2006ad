"""Runs a script and writes the history of its CUDA memory for pytorch.org/memory_viz.

Arguments: the script, the file to write, and a pattern of what is private in names of files.
"""

import pickle
import re
import runpy
import sys

import torch

script, out, private = sys.argv[1:4]
# The default of newer interpreters is a protocol that the page cannot read.
PROTOCOL = 4


def clean(value):
    """Takes what is private out of all texts of a snapshot."""
    if isinstance(value, str):
        return re.sub(private, "~", value) if private else value
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(clean(item) for item in value)
    return value


torch.cuda.memory._record_memory_history(max_entries=200_000)
sys.argv = [script]
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit:
    pass
with open(out, "wb") as file:
    pickle.dump(clean(torch.cuda.memory._snapshot()), file, protocol=PROTOCOL)
