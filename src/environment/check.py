"""Says what an interpreter is and what torch it has, as one marked JSON line.

It must run on any Python, so that an old one gets a sentence instead of a syntax error, and whatever sitecustomize
or torch print while they are imported must not mix with the answer.
"""

import json
import os
import sys

MARK = "torchleak-check: "
answer_fd = os.dup(1)
# What other code prints to standard output goes to standard error.
os.dup2(2, 1)


def say(value):
    line = "\n" + MARK + json.dumps(value) + "\n"
    os.write(answer_fd, line.encode("ascii"))


def answer(value):
    say(value)
    # Finalizers of torch or its plug-ins may crash or hang; the answer is complete.
    os._exit(0)


def last_lines():
    import traceback

    return traceback.format_exc().strip().splitlines()[-8:]


def interpreter():
    import platform
    import sysconfig

    try:
        # The C library that runs, where platform.libc_ver() gives what the executable asks for.
        glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    except (AttributeError, OSError, ValueError):
        glibc = None
    return {
        "executable": sys.executable,
        "python": platform.python_version(),
        "version": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "glibc": glibc,
    }


def numpy_version():
    try:
        from importlib.metadata import version

        return version("numpy")
    except Exception:
        return None


def locate():
    """Where torch is, without importing it; changes whenever another torch is put there."""
    found = interpreter()
    found["torch"] = None
    if found["version"] >= [3, 10]:
        import importlib.util

        spec = importlib.util.find_spec("torch")
        if spec is not None:
            folders = list(spec.submodule_search_locations or [])
            path = os.path.join(folders[0], "version.py") if folders else str(spec.origin)
            stamp = os.stat(path) if os.path.exists(path) else None
            found["torch"] = {
                "path": path,
                "size": stamp.st_size if stamp else 0,
                "mtime_ns": stamp.st_mtime_ns if stamp else 0,
            }
        found["numpy"] = numpy_version()
    answer(found)


def facts():
    answer(what_torch_is())


def what_torch_is():
    found = interpreter()
    try:
        import torch
        import torch.version as version

        found["torch"] = str(torch.__version__)
    except BaseException:
        answer({"import_error": last_lines()})
    found["torch_commit"] = getattr(version, "git_version", None)
    found["cuda"] = getattr(version, "cuda", None)
    found["hip"] = getattr(version, "hip", None)
    found["numpy"] = numpy_version()
    return found


def made():
    """Says what facts() says and then imports what every worker imports; the interpreter keeps the bytecode of it all.

    One process does both, because importing without bytecode is what takes long. The answer comes first: it holds
    for a torch whose Dynamo cannot be imported too.
    """
    import gc

    # Imports make no garbage worth the tenth of the time that looking for it takes.
    gc.disable()
    say(what_torch_is())
    try:
        import torch._dynamo
        import torch.utils.checkpoint
    finally:
        os._exit(0)


def layout():
    """Where an interpreter and its torch are, without importing it."""
    import importlib.util
    import site
    import sysconfig

    spec = importlib.util.find_spec("torch")
    # A regular package has its file in its folder, in the folder of all packages.
    torch = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else None
    purelib = sysconfig.get_path("purelib")
    folders = [purelib, sysconfig.get_path("platlib")]
    folders += getattr(site, "getsitepackages", list)() + [site.getusersitepackages()]
    real = [os.path.realpath(folder) for folder in folders]
    answer({
        "base_executable": getattr(sys, "_base_executable", None) or sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "minor": sys.version_info[1],
        "purelib": purelib,
        "site": torch,
        "is_installed": torch is not None and os.path.realpath(torch) in real,
    })


def modules():
    """Imports torch and the modules that a file lists, and looks whether each came from where it should.

    A module that lacks a package other than PyTorch's would lack it in every version, which says nothing of this one.
    """
    import importlib

    with open(sys.argv[2]) as file:
        wanted = json.load(file)["modules"]
    name = "torch"
    try:
        for name in ["torch", "torch._dynamo", "torch.utils.checkpoint"]:
            importlib.import_module(name)
        for name, path in wanted.items():
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if (error.name or "torch").split(".")[0] in ("torch", "torchgen", "functorch"):
                    raise
                continue
            found = getattr(module, "__file__", None)
            if found is None or os.path.realpath(found) != os.path.realpath(path):
                raise ImportError("%s was imported from %s instead of %s" % (name, found, path))
    except BaseException:
        answer({"module": name, "import_error": last_lines()})
    answer({"module": None, "import_error": []})


def devices():
    """In a process of its own: asking for devices starts CUDA, which can hang or crash with a bad driver."""
    import warnings

    warnings.simplefilter("ignore")
    import torch

    found = []
    try:
        if torch.cuda.is_available():
            for index in range(torch.cuda.device_count()):
                properties = torch.cuda.get_device_properties(index)
                found.append({
                    "name": properties.name,
                    "memory_bytes": int(properties.total_memory),
                    "capability": "%d.%d" % (properties.major, properties.minor),
                })
    except Exception:
        answer({"device_error": last_lines()})
    answer({"devices": found})


{
    "interpreter": lambda: answer(interpreter()),
    "locate": locate,
    "facts": facts,
    "made": made,
    "layout": layout,
    "modules": modules,
    "devices": devices,
}[sys.argv[1]]()
