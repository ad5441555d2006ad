"""Python's collector as it is before a script can put other functions in the place of its own.

Some frameworks replace `gc.collect` by a function that does nothing, and what torchleak asks of the
collector must be done nevertheless.
"""

import gc as _gc
from types import SimpleNamespace

gc = SimpleNamespace(**vars(_gc))
