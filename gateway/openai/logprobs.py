"""Log probabilities in the two forms in which OpenAI's clients read them. Knows tokens' texts; no choice, no reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slipstream.exchange import TokenLogprobs
from slipstream.text.tokenizer import Tokenizer

LEAST: Final = -9999.0  # in place of minus infinity, which JSON does not have


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """A part of a character is shown as U+FFFD, a special token by its name."""
    return tokenizer.token_bytes(token_id).decode(errors="replace") or tokenizer.token(token_id)


def chat_logprobs(tokenizer: Tokenizer, token_ids: Sequence[int], told: TokenLogprobs | None) -> dict[str, Any] | None:
    if told is None:
        return None
    content = []
    for token_id, logprob, top_ids, tops in _rows(token_ids, told):
        entry = _entry(tokenizer, token_id, logprob)
        likeliest = [_entry(tokenizer, top_id, top) for top_id, top in zip(top_ids, tops, strict=True)]
        content.append(entry | {"top_logprobs": likeliest})
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """Of one choice: a token's offset follows from all tokens before it, however the parts are cut."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def add(self, token_ids: Sequence[int], told: TokenLogprobs | None) -> dict[str, Any]:
        """`told` may lack the first token, if nothing precedes it."""
        texts = [token_text(self._tokenizer, token_id) for token_id in token_ids]
        known = [] if told is None else list(_rows(token_ids[len(token_ids) - len(told) :], told))
        unknown = [None] * (len(token_ids) - len(known))
        return {
            "tokens": texts,
            "token_logprobs": [*unknown, *(logprob for _, logprob, _, _ in known)],
            "top_logprobs": [*unknown, *(self._top(*row) for row in known)],
            "text_offset": [self._advance(text) for text in texts],
        }

    def _top(self, token_id: int, logprob: float, top_ids: list[int], tops: list[float]) -> dict[str, float]:
        """The likeliest tokens and the one that was taken. Two may read alike; the likelier one is kept."""
        pairs = [*zip(top_ids, tops, strict=True), (token_id, logprob)]
        return {token_text(self._tokenizer, one): its for one, its in sorted(pairs, key=lambda pair: pair[1])}

    def _advance(self, text: str) -> int:
        offset, self._offset = self._offset, self._offset + len(text)
        return offset


def _rows(token_ids: Sequence[int], told: TokenLogprobs) -> zip[tuple[int, float, list[int], list[float]]]:
    logprobs, tops = (np.maximum(values, LEAST).tolist() for values in (told.logprobs, told.top_logprobs))
    return zip(token_ids, logprobs, told.top_token_ids.tolist(), tops, strict=True)


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    text = token_text(tokenizer, token_id)
    return {"token": text, "logprob": logprob, "bytes": list(tokenizer.token_bytes(token_id) or text.encode())}
