"""Text from tokens, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.text.detokenizer import Detokenizer
from slipstream.text.tokenizer import Tokenizer
from tests.text.tiny_tokenizers import byte_level, metaspace

BYTE_LEVEL, METASPACE = byte_level(), metaspace()


def feed_all(tokenizer: Tokenizer, token_ids: tuple[int, ...]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.feed, token_ids), detokenizer.finish()]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, METASPACE], ids=["byte-level", "sentencepiece"])
def test_a_character_appears_with_its_last_byte_and_never_in_parts(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂", add_special_tokens=False)[-4:]
    assert feed_all(tokenizer, ids) == ["", "", "", "🙂", ""]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, METASPACE], ids=["byte-level", "sentencepiece"])
def test_an_unfinished_character_at_the_end_shows_as_a_replacement_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂", add_special_tokens=False)[-4:]
    assert feed_all(tokenizer, ids[:3]) == ["", "", "", "\ufffd"]


def test_what_is_complete_does_not_wait_for_what_is_not() -> None:
    tokenizer = BYTE_LEVEL
    first_byte, *_ = tokenizer.encode("é")
    letter, *_ = tokenizer.encode("x")
    assert feed_all(tokenizer, (letter, first_byte, letter)) == ["x", "", "\ufffdx", ""]


@given(st.text(max_size=40))
def test_any_text_comes_back_whole(text: str) -> None:
    assert "".join(feed_all(BYTE_LEVEL, BYTE_LEVEL.encode(text))) == text


@given(st.text(max_size=40))
def test_no_piece_holds_a_replacement_character_that_the_text_has_not(text: str) -> None:
    pieces = feed_all(METASPACE, METASPACE.encode(text, add_special_tokens=False))
    assert "".join(pieces).count("\ufffd") == text.count("\ufffd")
