"""Reads the orchestrator's commands."""

import json
from types import SimpleNamespace


def parse(line: str) -> SimpleNamespace:
    """Turns one command line into objects with attributes, named as in the protocol crate."""
    return json.loads(line, object_hook=lambda fields: SimpleNamespace(**fields))


def event_pipes(command: SimpleNamespace) -> int:
    """Gives how many event pipes come with a command, as the protocol crate does."""
    return command.ranks + 1 if command.ranks > 1 else 1
