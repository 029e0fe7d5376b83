"""A grammar from a command line: one of a schema file, a regular expression, an EBNF file, choices. Judges none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.wire.v1 import exchange_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class GrammarOptions:
    json_schema: Path | None = None
    regex: str | None = None
    ebnf: Path | None = None
    choices: Sequence[str] = ()

    def read(self) -> pb.Grammar | None:
        """Raises ValueError if more than one is given, and for a file that cannot be read."""
        given = {
            "--json-schema": self.json_schema is not None,
            "--regex": self.regex is not None,
            "--grammar": self.ebnf is not None,
            "--choice": bool(self.choices),
        }
        names = [name for name, wanted in given.items() if wanted]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} are given; an output keeps to one grammar, so give one of them")
        if self.json_schema is not None:
            return pb.Grammar(json_schema=_content(self.json_schema, "--json-schema"))
        if self.ebnf is not None:
            return pb.Grammar(ebnf=_content(self.ebnf, "--grammar"))
        if self.regex is not None:
            return pb.Grammar(regex=self.regex)
        return pb.Grammar(choice=json.dumps(list(self.choices))) if self.choices else None


def _content(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{option} is {file}, which cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{option} is {file}, which is no text: {error.reason} at byte {error.start}") from error
