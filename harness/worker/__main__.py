"""Entry point of the bundle: ``python BUNDLE ROLE ...``, see ``main``.

The interpreter runs the folder, so the folder and not the current directory is first on ``sys.path``:
a ``torch`` folder where the user stands must not hide the installed torch.
"""

import sys


def main() -> None:
    """Runs the role that the command line names."""
    role = sys.argv[1]
    if role == "host":
        from torchleak_worker import host

        host.main()
    elif role == "arm":
        from torchleak_worker import arm

        arm.main_spawned(int(sys.argv[2]))
    elif role == "torchrun":
        from torchleak_worker import ranks

        ranks.main_launcher([int(fd) for fd in sys.argv[2:]])
    elif role == "rank":
        from torchleak_worker import ranks

        ranks.main_rank(sys.argv[2], [int(fd) for fd in sys.argv[3:]])
    else:
        raise SystemExit(f"unknown role {role!r}: host, arm, torchrun or rank")


main()
