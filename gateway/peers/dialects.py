"""What a link says to a verifier and to a drafter, message by message. Knows the protocol; no request, no client."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from gateway.client_stream import TooSlow
from gateway.peers.dialect import Receiver
from gateway.peers.tokenizer_store import TokenizerStore
from slipstream.exchange import Commit, FeaturesWanted, ModelInfo, PromptLogprobs, StepReport, Update
from slipstream.request import SequenceRequest
from slipstream.wire.commits import commit_batch_from_wire, commit_to_wire
from slipstream.wire.failures import failure_from_wire
from slipstream.wire.features import feature_batches, wanted_to_wire
from slipstream.wire.model_info import model_info_from_wire
from slipstream.wire.requests import close_to_wire, open_to_wire, update_to_wire
from slipstream.wire.v1 import drafter_pb2, drafter_pb2_grpc, exchange_pb2, verifier_pb2, verifier_pb2_grpc

_LOG = logging.getLogger(__name__)

VerifierItem = exchange_pb2.Draft | Update | FeaturesWanted  # what is sent about a sequence that is open
DrafterItem = Commit | Update | exchange_pb2.Features


class CommitReceiver(Receiver, Protocol):
    """A sequence on a verifier. For every commit: `forward`, then `propose`, then `publish`."""

    def forward(self, commit: Commit) -> bool:
        """Tell the drafters. False if the commit is none of this sequence's future, and to be forgotten."""

    def forward_features(self, features: exchange_pb2.Features) -> None:
        """Tell the drafters that build on them; before the commits of the same step."""

    def propose(self, commit: Commit) -> None:
        """Let local proposers draft."""

    def publish_prompt(self, scores: PromptLogprobs) -> None:
        """Tell the client of its prompt; before the commits that come with it."""

    def publish(self, commit: Commit, step: StepReport) -> None:
        """Tell the client."""


class DraftReceiver(Receiver, Protocol):
    """A sequence on a drafter."""

    def on_drafts(self, drafts: list[exchange_pb2.Draft], draft_us: int, held_us: int) -> None:
        """This sequence's drafts of one drafter step."""


class VerifierDialect:
    """Drafts travel through the gateway as received: decoding every law here would cost more than it brings."""

    name = "verifier"

    def __init__(self, address: str, tokenizers: TokenizerStore) -> None:
        self._address = address
        self._tokenizers = tokenizers

    async def describe(self, channel: grpc.aio.Channel) -> ModelInfo:
        stub = verifier_pb2_grpc.VerifierStub(channel)
        info = await stub.GetModel(exchange_pb2.GetModelRequest())
        await self._tokenizers.fetch(self._address, stub)
        return model_info_from_wire(info)

    def start(self, channel: grpc.aio.Channel) -> Any:
        return verifier_pb2_grpc.VerifierStub(channel).Verify()

    def messages(
        self, closes: Iterable[int], opens: Iterable[SequenceRequest], items: Iterable[VerifierItem]
    ) -> Iterable[Message]:
        for sequence_id in closes:
            yield verifier_pb2.VerifyRequest(close=close_to_wire(sequence_id))
        for request in opens:
            yield verifier_pb2.VerifyRequest(open=open_to_wire(request))
        drafts: list[exchange_pb2.Draft] = []
        for item in items:
            if isinstance(item, Update):
                yield verifier_pb2.VerifyRequest(update=update_to_wire(item))
            elif isinstance(item, FeaturesWanted):
                yield verifier_pb2.VerifyRequest(features_wanted=wanted_to_wire(item))
            else:
                drafts.append(item)
        if drafts:
            yield verifier_pb2.VerifyRequest(drafts=exchange_pb2.DraftBatch(drafts=drafts))

    def dispatch(
        self, message: verifier_pb2.VerifyResponse, receivers: Mapping[int, CommitReceiver]
    ) -> StepReport | None:
        if message.HasField("error"):
            _dispatch_error(message.error, receivers)
        elif message.HasField("commits"):
            return _dispatch_commits(message.commits, receivers)
        elif message.HasField("features"):
            _dispatch_features(message.features, receivers)
        return None


class DrafterDialect:
    name = "drafter"

    async def describe(self, channel: grpc.aio.Channel) -> ModelInfo:
        stub = drafter_pb2_grpc.DrafterStub(channel)
        return model_info_from_wire(await stub.GetModel(exchange_pb2.GetModelRequest()))

    def start(self, channel: grpc.aio.Channel) -> Any:
        return drafter_pb2_grpc.DrafterStub(channel).Draft()

    def messages(
        self, closes: Iterable[int], opens: Iterable[SequenceRequest], items: Iterable[DrafterItem]
    ) -> Iterable[Message]:
        for sequence_id in closes:
            yield drafter_pb2.DraftRequest(close=close_to_wire(sequence_id))
        for request in opens:
            yield drafter_pb2.DraftRequest(open=open_to_wire(request))
        commits: list[exchange_pb2.Commit] = []
        features: list[exchange_pb2.Features] = []
        for item in items:
            if isinstance(item, Update):
                yield drafter_pb2.DraftRequest(update=update_to_wire(item))
            elif isinstance(item, exchange_pb2.Features):
                features.append(item)
            else:  # a drafter has no use for what the target thought of its tokens
                commits.append(commit_to_wire(replace(item, logprobs=None)))
        for batch in feature_batches(features):
            yield drafter_pb2.DraftRequest(features=batch)
        if commits:
            yield drafter_pb2.DraftRequest(commits=exchange_pb2.CommitBatch(commits=commits))

    def dispatch(self, message: drafter_pb2.DraftResponse, receivers: Mapping[int, DraftReceiver]) -> None:
        if message.HasField("error"):
            _dispatch_error(message.error, receivers)
        elif message.HasField("drafts"):
            _dispatch_drafts(message.drafts, receivers)


_AnyReceiver = TypeVar("_AnyReceiver", bound=Receiver)


def _dispatch_error(message: exchange_pb2.SequenceError, receivers: Mapping[int, _AnyReceiver]) -> None:
    failure = failure_from_wire(message)
    if receiver := receivers.get(failure.sequence_id):
        _guarded(receiver, partial(receiver.on_failure, failure.error))


def _dispatch_features(batch: exchange_pb2.FeatureBatch, receivers: Mapping[int, CommitReceiver]) -> None:
    for features in batch.features:
        if receiver := receivers.get(features.sequence_id):
            _guarded(receiver, partial(receiver.forward_features, features))


def _dispatch_commits(message: exchange_pb2.CommitBatch, receivers: Mapping[int, CommitReceiver]) -> StepReport:
    """Drafters hear of all commits of the step before any other work is done for one of them."""
    batch = commit_batch_from_wire(message)
    addressed = [(receivers[c.sequence_id], c) for c in batch.commits if c.sequence_id in receivers]
    accepted = [(receiver, c) for receiver, c in addressed if _guarded(receiver, partial(receiver.forward, c))]
    # The drafters' links write in the tick that follows, and this comes behind them.
    scored = [(receivers[s.sequence_id], s) for s in batch.prompt_logprobs if s.sequence_id in receivers]
    asyncio.get_running_loop().call_soon(_after_forwarding, accepted, scored, batch.step)
    return batch.step


def _after_forwarding(
    accepted: list[tuple[CommitReceiver, Commit]],
    scored: list[tuple[CommitReceiver, PromptLogprobs]],
    step: StepReport,
) -> None:
    for receiver, commit in accepted:
        _guarded(receiver, partial(receiver.propose, commit))
    for receiver, scores in scored:
        _guarded(receiver, partial(receiver.publish_prompt, scores))
    for receiver, commit in accepted:
        _guarded(receiver, partial(receiver.publish, commit, step))


def _dispatch_drafts(batch: exchange_pb2.DraftBatch, receivers: Mapping[int, DraftReceiver]) -> None:
    drafts_of: dict[int, list[exchange_pb2.Draft]] = defaultdict(list)
    for draft in batch.drafts:
        drafts_of[draft.sequence_id].append(draft)
    for sequence_id, drafts in drafts_of.items():
        if receiver := receivers.get(sequence_id):
            _guarded(receiver, partial(receiver.on_drafts, drafts, batch.draft_us, batch.held_us))


def _guarded(receiver: Receiver, action: Callable[[], bool | None]) -> bool | None:
    """One sequence's fault never ends the stream that others are on."""
    try:
        return action()
    except Exception as error:
        if not isinstance(error, TooSlow):
            _LOG.exception("a sequence failed")
        receiver.on_failure(error)
        return None
