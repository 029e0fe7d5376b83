"""The text of one completion, from its committed tokens. Knows tokens and stop strings; no peer, no client."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.exchange import Commit
from slipstream.request import FinishReason
from slipstream.text.detokenizer import Detokenizer
from slipstream.text.stop_strings import StopMatcher
from slipstream.text.tokenizer import Tokenizer


class CompletionText:
    """Gives out whole characters that no stop string can take back.

    A stop token's own text is part of the output only with `include_stop`, as with stop strings.
    """

    def __init__(self, tokenizer: Tokenizer, stop_strings: Sequence[str], *, include_stop: bool) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stop_strings, include_stop=include_stop)
        self._include_stop = include_stop

    def feed(self, commit: Commit) -> str:
        token_ids = commit.token_ids
        if _ends_with_stop_token(commit) and not self._include_stop:
            token_ids = token_ids[:-1]
        text = "".join(self._matcher.feed(self._detokenizer.feed(token_id)).text for token_id in token_ids)
        if commit.finish_reason is FinishReason.NONE:
            return text
        return text + self._matcher.feed(self._detokenizer.finish()).text + self._matcher.finish()


def _ends_with_stop_token(commit: Commit) -> bool:
    return commit.finish_reason is FinishReason.STOP and not commit.stop_string
