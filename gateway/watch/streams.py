"""Events of running requests: each pass with its text, and the end. Knows commits and a feed; no viewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from gateway.watch.feed import Feed
from slipstream.exchange import Commit
from slipstream.request import SequenceRequest

# How a token came about.
ACCEPTED: Final = "accepted"  # drafted, and right
RECOVERED: Final = "recovered"  # the target's own, in place of a draft token that was rejected
BONUS: Final = "bonus"  # the target's own, after drafts that were all right
PLAIN: Final = "plain"  # nothing was drafted


class CommitText(Protocol):
    """Makes text of commits."""

    def feed(self, commit: Commit) -> tuple[str, list[int]]:
        """The text that became certain, and how many characters of it each token made so."""


class WatchedText:
    """Text as `text` makes it, also published to whoever watches."""

    def __init__(self, text: CommitText, feed: Feed, request: SequenceRequest, model: str) -> None:
        self._text = text
        self._feed = feed
        self._request = request
        self._model = model

    def feed(self, commit: Commit) -> tuple[str, list[int]]:
        text, lengths = self._text.feed(commit)
        if self._feed.is_watched:
            self._publish(commit, text, lengths)
        return text, lengths

    def _publish(self, commit: Commit, text: str, lengths: list[int]) -> None:
        """Whoever comes late needs no earlier event to make sense of this one."""
        request = self._request
        self._feed.publish(
            {
                "kind": "pass",
                "stream": stream_name(request.request_id, request.sample_index),
                "request": request.request_id,
                "tenant": request.tenant,
                "model": self._model,
                "proposer": commit.proposer,
                "pieces": list(pieces(commit, text, lengths)),
                "tokens": len(commit.token_ids),
                "drafted": commit.num_draft_tokens,
                "accepted": commit.num_accepted,
                "wait_us": commit.wait_us,
            }
        )


def publish_end(feed: Feed, request_id: str, sample: int, outcome: str) -> None:
    if feed.is_watched:
        feed.publish({"kind": "end", "stream": stream_name(request_id, sample), "outcome": outcome})


def stream_name(request_id: str, sample: int) -> str:
    return f"{request_id}/{sample}"


def pieces(commit: Commit, text: str, lengths: list[int]) -> Iterator[tuple[str, str]]:
    """Each token's text and how the token came about; what the end releases belongs to the last."""
    start = 0
    for index, length in enumerate(lengths):
        end = len(text) if index == len(lengths) - 1 else start + length
        yield text[start:end], _origin(commit, index)
        start = end


def _origin(commit: Commit, index: int) -> str:
    if index < commit.num_accepted:
        return ACCEPTED
    if not commit.num_draft_tokens:
        return PLAIN
    return BONUS if commit.num_accepted == commit.num_draft_tokens else RECOVERED
