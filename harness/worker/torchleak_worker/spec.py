"""Reads the orchestrator's commands."""

import json
from types import SimpleNamespace


def parse(line: str) -> SimpleNamespace:
    """Turns one command line into objects with attributes, named as in the protocol crate."""
    return json.loads(line, object_hook=lambda fields: SimpleNamespace(**fields))
