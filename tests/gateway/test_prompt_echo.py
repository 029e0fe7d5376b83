"""A prompt is told once, whole, in bounded parts, with the log probabilities that belong to its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gateway.completion import PromptPart
from gateway.prompt_echo import MAX_PART_TOKENS, PromptEcho
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from tests.gateway.fakes import TOKENIZER

IDS = TOKENIZER.encode("Hé, you")


def scores(start: int, values: Sequence[float]) -> PromptLogprobs:
    none = np.zeros((len(values), 0))
    logprobs = TokenLogprobs(np.array(values, np.float32), none.astype(np.int32), none.astype(np.float32))
    return PromptLogprobs(1, start, logprobs)


def whole(parts: Sequence[PromptPart]) -> PromptPart:
    first, *others = parts
    for part in others:
        first.append(part)
    return first


def test_text_and_ids_are_told_at_once_if_nothing_must_be_computed() -> None:
    echo = PromptEcho(IDS, TOKENIZER, echo=True)
    (part,) = echo.begin()
    assert (part.text, tuple(part.token_ids), part.logprobs) == ("Hé, you", IDS, None)
    assert echo.is_complete


def test_nothing_is_told_to_who_did_not_ask() -> None:
    echo = PromptEcho(IDS, TOKENIZER)
    assert list(echo.begin()) == list(echo.add(scores(1, [-1.0]))) == []
    assert echo.is_complete


def test_log_probabilities_come_with_their_tokens_and_the_first_token_has_none() -> None:
    echo = PromptEcho(IDS, TOKENIZER, echo=True, logprobs=True)
    assert list(echo.begin()) == []
    values = [-float(i) for i in range(1, len(IDS))]
    parts = [*echo.add(scores(1, values[:2])), *echo.add(scores(3, values[2:]))]
    assert [len(part.token_ids) for part in parts] == [3, len(IDS) - 3]
    told = whole(parts)
    assert (told.text, tuple(told.token_ids)) == ("Hé, you", IDS)
    assert told.logprobs is not None
    assert told.logprobs.logprobs.tolist() == values


def test_what_is_scored_again_after_a_move_is_told_once() -> None:
    echo = PromptEcho(IDS, TOKENIZER, logprobs=True)
    values = [-float(i) for i in range(1, len(IDS))]
    parts = [*echo.add(scores(1, values[:3])), *echo.add(scores(1, values[:2])), *echo.add(scores(3, values[2:]))]
    told = whole(parts)
    assert (told.text, tuple(told.token_ids)) == ("", IDS)
    assert told.logprobs is not None
    assert told.logprobs.logprobs.tolist() == values
    assert echo.is_complete


@pytest.mark.parametrize("logprobs", [False, True])
def test_long_prompts_are_told_in_bounded_parts(logprobs: bool) -> None:
    ids = (70,) * (2 * MAX_PART_TOKENS + 10)
    echo = PromptEcho(ids, TOKENIZER, echo=True, logprobs=logprobs)
    parts = [*echo.begin(), *echo.add(scores(1, [-1.0] * (len(ids) - 1)))]
    assert len(parts) == 3
    assert max(len(part.token_ids) for part in parts) <= MAX_PART_TOKENS + 1
    assert len(whole(parts).token_ids) == len(ids)


def test_a_prompt_of_one_token_is_told_although_nothing_is_scored() -> None:
    (part,) = PromptEcho((70,), TOKENIZER, logprobs=True).begin()
    assert (part.token_ids, part.logprobs) == ([70], None)
