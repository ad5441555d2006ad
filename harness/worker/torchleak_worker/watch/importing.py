"""Calls back when a module has been imported, without importing anything itself."""

import sys

# Before the script begins, which may put other functions in the place of the collector's.
from torchleak_worker import collector  # noqa: F401


class AfterImport:
    """A finder that lets the others find a module and is told when it has been executed.

    It stays until the module is there: asking whether a module could be found is no import.
    """

    def __init__(self, name, callback):
        """Calls ``callback`` with the module ``name``, now if it is imported already."""
        self.name = name
        self.callback = callback

    def install(self):
        """Begins to wait."""
        module = sys.modules.get(self.name)
        if module is not None:
            self.callback(module)
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        """Gives what the other finders find, with a loader that calls back."""
        if name != self.name or self not in sys.meta_path:
            return None
        # Those before it have been asked, and two of this class that asked each other would never end.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def imported(self, module):
        """Is told that the module has been executed."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.callback(module)


class _Loader:
    """Stands for another loader until it has loaded its module."""

    def __init__(self, loader, waiting):
        self._loader = loader
        self._waiting = waiting

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module):
        # The module and whoever asks it for its resources see the loader that is its own.
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._waiting.imported(module)


def wait_for_torch(specification, bundle):
    """Watches this process as soon as it has imported torch.

    Args:
        specification: The path of the protocol's ``WatchSpec``.
        bundle: The folder of the probe, which is on ``sys.path`` only while it is needed.
    """
    calls = _calls(specification)

    def install(torch):
        sys.path.insert(0, bundle)
        try:
            import torchleak_probe  # noqa: F401

            from torchleak_worker.watch import installing
        finally:
            sys.path.remove(bundle)
        installing.install(specification, calls)

    def guarded(torch):
        try:
            install(torch)
        except Exception as error:
            _tell_unwatched(specification, error)

    AfterImport("torch", guarded).install()


def _calls(specification):
    """Gives the calls that are steps, if any are; who has no torch must not pay for reading more."""
    with open(specification) as file:
        text = file.read()
    if '"call"' not in text:
        return None
    import json

    boundary = json.loads(text)["boundary"]
    if boundary["kind"] != "call":
        return None
    from torchleak_worker.watch.calls import Calls

    calls = Calls(boundary["module"], boundary["function"])
    calls.wait()
    return calls


def _tell_unwatched(specification, error):
    # Only with plain Python: the probe may be what cannot be imported.
    import contextlib
    import json
    import os

    with contextlib.suppress(Exception):
        with open(specification) as file:
            folder = json.load(file)["events"]
        event = {
            "event": "unwatched",
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "reason": f"{type(error).__name__}: {error}",
        }
        with open(os.path.join(folder, f"unwatched-{os.getpid()}.jsonl"), "a") as file:
            file.write(json.dumps(event) + "\n")
