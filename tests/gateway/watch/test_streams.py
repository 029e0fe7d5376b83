"""What is told of a request's passes: whose text, and how each token came about."""

from __future__ import annotations

import pytest

from gateway.watch.feed import Feed
from gateway.watch.streams import WatchedText, pieces, publish_end
from slipstream.exchange import Commit
from slipstream.request import SamplingParams, SequenceRequest

REQUEST = SequenceRequest(
    sequence_id=1, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), tenant="t", request_id="r"
)


class Letters:
    def feed(self, commit: Commit) -> tuple[str, list[int]]:
        return "".join(map(chr, commit.token_ids)), [1] * len(commit.token_ids)


@pytest.mark.parametrize(
    ("num_accepted", "num_draft_tokens", "origins"),
    [
        (0, 0, ["plain"]),
        (0, 3, ["recovered"]),
        (2, 3, ["accepted", "accepted", "recovered"]),
        (2, 2, ["accepted", "accepted", "bonus"]),
    ],
)
def test_each_token_says_how_it_came_about(num_accepted: int, num_draft_tokens: int, origins: list[str]) -> None:
    commit = Commit(1, 1, (65,) * (num_accepted + 1), num_accepted=num_accepted, num_draft_tokens=num_draft_tokens)
    assert [origin for _, origin in pieces(commit, *Letters().feed(commit))] == origins


def test_text_held_back_comes_with_the_token_that_releases_it_and_the_rest_with_the_last() -> None:
    commit = Commit(1, 1, (1, 2, 3), num_accepted=2, num_draft_tokens=2)
    assert [text for text, _ in pieces(commit, "abcdef", [0, 4, 0])] == ["", "abcd", "ef"]


async def test_nothing_is_made_while_nobody_looks() -> None:
    feed = Feed()
    text = WatchedText(Letters(), feed, REQUEST, "m")
    assert text.feed(Commit(1, 1, (65,))) == ("A", [1])
    with feed.viewing() as viewer:
        text.feed(Commit(1, 2, (66,)))
        publish_end(feed, "r", 0, "STOP")
        shown, end = await anext(viewer.batches(60.0))
    assert (shown["pieces"], shown["stream"], shown["tenant"], shown["model"]) == ([("B", "plain")], "r/0", "t", "m")
    assert end == {"kind": "end", "stream": "r/0", "outcome": "STOP"}
