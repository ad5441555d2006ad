"""Runs a function in a forked child: a disable site changes torch for the rest of its process."""

import os
import pickle
import traceback
from collections.abc import Callable


def in_child(function: Callable, *args):
    """Return what `function(*args)` returns in a child; a failure there is an AssertionError here."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The child must never return into the test runner, whatever happens.
        try:
            try:
                answer = (True, function(*args))
            except BaseException:
                answer = (False, traceback.format_exc())
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    assert data, "the child died without an answer"
    succeeded, answer = pickle.loads(data)
    assert succeeded, answer
    return answer
