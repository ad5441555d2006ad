"""Runs in every interpreter that a watched script starts, before the script itself.

`torchleak watch` puts this folder first on PYTHONPATH. Any Python may meet this file, also one that
torchleak cannot watch, so its syntax is that of every version. It makes itself unseen, sets up what waits
for an import of torch, and ends with the sitecustomize that it hides, if there is one.
"""

import os
import sys

_FOLDER = os.path.dirname(__file__)


def _start():
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    getattr(sys, "path_importer_cache", {}).pop(_FOLDER, None)
    specification = os.environ.get("TORCHLEAK_WATCH")
    if not specification:
        return
    # Whatever is wrong here is torchleak's own and must not touch the script.
    try:
        name = sys.implementation.name if hasattr(sys, "implementation") else "python"
        if name != "cpython" or sys.version_info < (3, 10):
            _tell_unwatched(specification, "torchleak needs CPython 3.10 or later, and this is %s" % name)
            return
        bundle = os.path.dirname(_FOLDER)
        sys.path.insert(0, bundle)
        try:
            from torchleak_worker.watch import importing
        finally:
            sys.path.remove(bundle)
        importing.wait_for_torch(specification, bundle)
    except Exception:
        try:
            _tell_unwatched(specification, "%s: %s" % (sys.exc_info()[0].__name__, sys.exc_info()[1]))
        except Exception:
            pass


def _tell_unwatched(specification, reason):
    import json

    with open(specification) as file:
        folder = json.load(file)["events"]
    version = ".".join(str(part) for part in sys.version_info[:3])
    event = {"event": "unwatched", "pid": os.getpid(), "python": version, "reason": reason}
    with open(os.path.join(folder, "unwatched-%d.jsonl" % os.getpid()), "a") as file:
        file.write(json.dumps(event) + "\n")


_start()
# The hidden one takes this one's place in sys.modules. Where there is none, the import fails in the way that
# tells Python that there is none.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401
