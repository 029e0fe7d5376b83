"""Whether a service would take a command line that a file under docker/ has. Knows option names; starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer

DOCKER = Path(__file__).parents[2] / "docker"


def unknown_options(command: Sequence[str]) -> list[str]:
    """Of `python -m SERVICE --option value ...`: those that the service does not have."""
    module = command[command.index("-m") + 1]
    service = typer.main.get_command(import_module(f"{module}.__main__").app)
    known = {name for parameter in service.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in map(option, command) if word.startswith("--") and word not in known]


def option(word: str) -> str:
    return word.partition("=")[0]


def value(command: Sequence[str], name: str) -> str:
    """Of an option, given as `--name value` or `--name=value`."""
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return words[words.index(name) + 1]


def port(command: Sequence[str], name: str) -> int:
    return int(value(command, name).rpartition(":")[2])
