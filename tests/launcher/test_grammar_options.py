"""A grammar comes from one option, and from no two."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.grammar_options import GrammarOptions
from slipstream.wire.v1 import exchange_pb2 as pb


def test_each_option_gives_its_kind_of_grammar(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("größe", encoding="utf-8")
    assert GrammarOptions().read() is None
    assert GrammarOptions(json_schema=file).read() == pb.Grammar(json_schema="größe")
    assert GrammarOptions(ebnf=file).read() == pb.Grammar(ebnf="größe")
    assert GrammarOptions(regex="a|b").read() == pb.Grammar(regex="a|b")
    assert GrammarOptions(choices=("a", 'b"')).read() == pb.Grammar(choice='["a", "b\\""]')


def test_two_of_them_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="--regex and --choice are given"):
        GrammarOptions(regex="a", choices=("b",)).read()


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--json-schema is .*nowhere, which cannot be read: No such file"):
        GrammarOptions(json_schema=tmp_path / "nowhere").read()
    (tmp_path / "bytes").write_bytes(b"a\xff")
    with pytest.raises(ValueError, match=r"--grammar is .*bytes, which is no text: .* at byte 1"):
        GrammarOptions(ebnf=tmp_path / "bytes").read()
