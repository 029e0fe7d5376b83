"""Prompts to ask many times, from a file: JSON lines, YAML, or one on each line. Knows files; asks nobody."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

DEMO_PROMPTS: Final = Path(__file__).with_name("prompts") / "demo.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    text: str
    kind: str = ""  # what to expect of it, such as "repeat"


def load_prompts(path: Path) -> list[Prompt]:
    """Raises ValueError with file, place and what is wanted."""
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    readers = {".yaml": _from_yaml, ".jsonl": _from_json_lines}
    prompts = readers.get(path.suffix, _from_lines)(path, content)
    if not prompts:
        raise ValueError(f"{path}: holds no prompt; give at least one")
    return prompts


def _from_yaml(path: Path, content: str) -> list[Prompt]:
    try:
        entries = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(entries, list):
        raise ValueError(f"{path}: must be a list of entries with `text` and, if wanted, `kind`")
    return [_prompt(path, index, entry, "text") for index, entry in enumerate(entries, start=1)]


def _from_json_lines(path: Path, content: str) -> list[Prompt]:
    prompts = []
    for index, line in enumerate(content.splitlines(), start=1):
        try:
            prompts.append(_prompt(path, index, json.loads(line), "prompt"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{index}: is not JSON: {error}") from error
    return prompts


def _from_lines(path: Path, content: str) -> list[Prompt]:
    return [Prompt(text=line) for line in content.splitlines() if line.strip()]


def _prompt(path: Path, index: int, entry: object, field: str) -> Prompt:
    text = entry.get(field) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(text, str) or not text:
        raise ValueError(f"{path}: entry {index} is {entry!r}; it must hold `{field}` with a text that is not empty")
    return Prompt(text=text, kind=str(entry.get("kind", "")))
