"""Log probabilities in the two forms in which OpenAI's clients read them. Knows tokens' texts; no choice, no reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.exchange import TokenLogprobs
from slipstream.text.tokenizer import Tokenizer


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
            "top_logprobs": [*unknown, *(self._top(top_ids, tops) for _, _, top_ids, tops in known)],
            "text_offset": [self._advance(text) for text in texts],
        }

    def _top(self, top_ids: list[int], tops: list[float]) -> dict[str, float]:
        """Two tokens may read alike; the likelier one is told."""
        pairs = list(zip(top_ids, tops, strict=True))
        return {token_text(self._tokenizer, top_id): top for top_id, top in reversed(pairs)}

    def _advance(self, text: str) -> int:
        offset, self._offset = self._offset, self._offset + len(text)
        return offset


def _rows(token_ids: Sequence[int], told: TokenLogprobs) -> zip[tuple[int, float, list[int], list[float]]]:
    columns = (told.logprobs.tolist(), told.top_token_ids.tolist(), told.top_logprobs.tolist())
    return zip(token_ids, *columns, strict=True)


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    text = token_text(tokenizer, token_id)
    return {"token": text, "logprob": logprob, "bytes": list(tokenizer.token_bytes(token_id) or text.encode())}
