"""Events of the work of verifiers and drafters: when each step began and ended. Knows messages, no request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic

import grpc
from google.protobuf.message import Message

from gateway.peers.dialect import Dialect, ItemT, ReceiverT
from gateway.watch.feed import Feed
from slipstream.exchange import ModelInfo, StepReport
from slipstream.request import SequenceRequest

VERIFY: Final = "verify"
DRAFT: Final = "draft"


class WatchedDialect(Generic[ReceiverT, ItemT]):
    """Speaks as `dialect` does. Clocks differ between machines: work ended when the gateway heard of it."""

    def __init__(
        self,
        dialect: Dialect[ReceiverT, ItemT],
        address: str,
        feed: Feed,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = dialect.name
        self._dialect = dialect
        self._address = address
        self._feed = feed
        self._clock = clock

    async def describe(self, channel: grpc.aio.Channel) -> ModelInfo:
        return await self._dialect.describe(channel)

    def start(self, channel: grpc.aio.Channel) -> Any:
        return self._dialect.start(channel)

    def messages(
        self, closes: Iterable[int], opens: Iterable[SequenceRequest], items: Iterable[ItemT]
    ) -> Iterable[Message]:
        return self._dialect.messages(closes, opens, items)

    def dispatch(self, message: Any, receivers: Mapping[int, ReceiverT]) -> StepReport | None:
        if self._feed.is_watched:
            self._publish(message)
        return self._dialect.dispatch(message, receivers)

    def _publish(self, message: Any) -> None:
        kind = message.WhichOneof("message")
        if kind == "commits" and message.commits.commits:
            self._publish_step(message.commits)
        elif kind == "drafts":
            self._publish_batch(message.drafts)

    def _publish_step(self, batch: Any) -> None:
        step = batch.step
        self._feed.publish(
            self._work(VERIFY, step.step_us)
            | {
                "sequences": len(batch.commits),
                "tokens": step.num_tokens,
                "waiting": step.num_waiting,
                "running": step.num_running,
                "kv_used": step.kv_blocks_used,
                "kv_total": step.kv_blocks_total,
                "wait_us": max(commit.wait_us for commit in batch.commits),
            }
        )

    def _publish_batch(self, batch: Any) -> None:
        """Held beyond what it computed, a batch waited for the drafter to be free."""
        wait_us = max(0, batch.held_us - batch.draft_us)
        self._feed.publish(self._work(DRAFT, batch.draft_us) | {"paths": len(batch.drafts), "wait_us": wait_us})

    def _work(self, lane: str, work_us: int) -> dict[str, Any]:
        return {"kind": "work", "lane": lane, "peer": self._address, "end": self._clock(), "work_us": work_us}
