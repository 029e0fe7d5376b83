"""When peers worked, read from the messages that pass through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.peers.dialects import DrafterDialect
from gateway.watch.feed import Event, Feed
from gateway.watch.lanes import WatchedDialect
from slipstream.wire.v1 import drafter_pb2, exchange_pb2, verifier_pb2


class Silent(DrafterDialect):
    """Notes what was dispatched."""

    def __init__(self) -> None:
        self.dispatched: list[Any] = []

    def dispatch(self, message: Any, receivers: Mapping[int, Any]) -> None:
        self.dispatched.append(message)


async def told(*messages: Any) -> list[Event]:
    feed, inner = Feed(), Silent()
    dialect = WatchedDialect(inner, "peer:1", feed, clock=lambda: 50.0)
    dialect.dispatch(messages[0], {})
    with feed.viewing() as viewer:
        for message in messages:
            dialect.dispatch(message, {})
        feed.publish({"kind": "last"})
        *events, _ = await anext(viewer.batches(60.0))
    assert inner.dispatched == [messages[0], *messages]
    return events


async def test_a_verify_step_has_its_time_its_load_and_the_longest_wait() -> None:
    step = exchange_pb2.StepReport(step_us=900, num_tokens=7, num_waiting=2, num_running=5)
    commits = [exchange_pb2.Commit(sequence_id=1, wait_us=10), exchange_pb2.Commit(sequence_id=2, wait_us=30)]
    batch = exchange_pb2.CommitBatch(commits=commits, step=step)
    (event,) = await told(verifier_pb2.VerifyResponse(commits=batch))
    assert (event["lane"], event["peer"], event["end"], event["work_us"]) == ("verify", "peer:1", 50.0, 900)
    assert (event["wait_us"], event["sequences"], event["waiting"], event["tokens"]) == (30, 2, 2, 7)


async def test_a_draft_batch_waited_for_as_long_as_it_was_held_beyond_its_own_time() -> None:
    batch = exchange_pb2.DraftBatch(drafts=[exchange_pb2.Draft()] * 3, draft_us=400, held_us=600)
    (event,) = await told(drafter_pb2.DraftResponse(drafts=batch))
    assert (event["lane"], event["work_us"], event["wait_us"], event["paths"]) == ("draft", 400, 200, 3)


async def test_other_messages_are_no_work() -> None:
    error = drafter_pb2.DraftResponse(error=exchange_pb2.SequenceError(sequence_id=1))
    empty = verifier_pb2.VerifyResponse(commits=exchange_pb2.CommitBatch())
    assert await told(error, empty) == []
