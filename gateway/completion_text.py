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

    def feed(self, commit: Commit) -> tuple[str, list[int]]:
        """The text that became certain, and how many characters of it each token made so; the end's rest follows."""
        pieces = [self._matcher.feed(self._detokenizer.feed(token_id)).text for token_id in self._visible(commit)]
        lengths = [len(piece) for piece in pieces] + [0] * (len(commit.token_ids) - len(pieces))
        if commit.finish_reason is not FinishReason.NONE:
            pieces += [self._matcher.feed(self._detokenizer.finish()).text, self._matcher.finish()]
        return "".join(pieces), lengths

    def _visible(self, commit: Commit) -> tuple[int, ...]:
        hidden = _ends_with_stop_token(commit) and not self._include_stop
        return commit.token_ids[:-1] if hidden else commit.token_ids


def _ends_with_stop_token(commit: Commit) -> bool:
    return commit.finish_reason is FinishReason.STOP and not commit.stop_string
