"""Text from commits: whole characters, cut at stops, complete at the end."""

from __future__ import annotations

from typing import Any

from gateway.completion_text import CompletionText
from slipstream.exchange import Commit
from slipstream.request import FinishReason
from tests.text.tiny_tokenizers import byte_level

TOKENIZER = byte_level()


def commit(text: str, **fields: Any) -> Commit:
    return Commit(1, 0, TOKENIZER.encode(text), **fields)


def text_of(*commits: Commit, stop: tuple[str, ...] = (), include_stop: bool = False) -> str:
    text = CompletionText(TOKENIZER, stop, include_stop=include_stop)
    return "".join(text.feed(commit)[0] for commit in commits)


def test_a_character_across_commits_comes_whole() -> None:
    first, second = TOKENIZER.encode("é")
    text = CompletionText(TOKENIZER, (), include_stop=False)
    assert text.feed(Commit(1, 0, (first,))) == ("", [0])
    assert text.feed(Commit(1, 1, (second,))) == ("é", [1])


def test_a_stop_string_is_cut_unless_asked_for() -> None:
    last = commit("END", finish_reason=FinishReason.STOP, stop_string="END")
    assert text_of(commit("a "), last, stop=("END",)) == "a "
    assert text_of(commit("a "), last, stop=("END",), include_stop=True) == "a END"


def test_a_stop_tokens_own_text_is_cut_unless_asked_for() -> None:
    last = commit("ab.", finish_reason=FinishReason.STOP)
    assert text_of(last) == "ab"
    assert text_of(last, include_stop=True) == "ab."


def test_nothing_held_back_is_lost_at_the_end() -> None:
    half = Commit(1, 0, TOKENIZER.encode("xEé")[:-1], finish_reason=FinishReason.LENGTH)
    assert text_of(half, stop=("END",)) == "xE\ufffd"


def test_each_tokens_characters_are_counted_and_the_rest_of_the_end_follows() -> None:
    text = CompletionText(TOKENIZER, ("END",), include_stop=False)
    assert text.feed(commit("aE")) == ("a", [1, 0])
    assert text.feed(commit("xE", finish_reason=FinishReason.LENGTH)) == ("ExE", [2, 0])
    assert text.feed(commit("b.", finish_reason=FinishReason.STOP)) == ("b", [1, 0])
