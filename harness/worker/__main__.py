"""Entry point of the bundle: ``python BUNDLE host`` or ``python BUNDLE arm FD``.

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
    else:
        raise SystemExit(f"unknown role {role!r}: host or arm")


main()
