"""What can go wrong before a program's first step."""


class ProgramError(ValueError):
    """The program asks for something that cannot be built, for example an operator that does not exist."""


class Unsupported(RuntimeError):
    """The installed torch lacks what the program needs.

    Raised instead of going on without it: a disable site that silently does nothing would be reported as a
    fixed leak.
    """
