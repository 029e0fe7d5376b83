"""What is said to verifiers and drafters, and in which order what they say is acted on."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client_stream import TooSlow
from gateway.peers.dialects import DrafterDialect, VerifierDialect
from gateway.peers.tokenizer_store import TokenizerStore
from slipstream.exchange import Commit, CommitBatch, FeaturesWanted, StepReport
from slipstream.wire.commits import commit_batch_to_wire
from slipstream.wire.v1 import drafter_pb2, exchange_pb2, verifier_pb2


class Sequence:
    """Writes down what it is told. As a link does, a task of its own sends what was forwarded."""

    def __init__(self, name: str, journal: list[str], fails_at: str = "") -> None:
        self.name = name
        self.journal = journal
        self.fails_at = fails_at
        self.wake = asyncio.Event()

    async def send_forwarded(self) -> None:
        await self.wake.wait()
        self.journal.append(f"send {self.name}")

    def forward(self, commit: Commit) -> bool:
        self.wake.set()
        self._note("forward")
        return commit.base > 0

    def forward_features(self, features: exchange_pb2.Features) -> None:
        self._note(f"features from {features.start} on to")

    def propose(self, commit: Commit) -> None:
        self._note("propose")

    def publish(self, commit: Commit, step: StepReport) -> None:
        self._note("publish")

    def on_drafts(self, drafts: list[exchange_pb2.Draft], draft_us: int, held_us: int) -> None:
        self._note(f"{len(drafts)} drafts")

    def on_failure(self, error: Exception) -> None:
        self.journal.append(f"failure {self.name}: {error}")

    def on_down(self) -> None:
        raise AssertionError("nothing went down")

    def _note(self, what: str) -> None:
        self.journal.append(f"{what} {self.name}")
        if what == self.fails_at:
            raise TooSlow("too slow")


def verifier_dialect() -> VerifierDialect:
    return VerifierDialect("here", TokenizerStore())


def commits(*named: Commit) -> verifier_pb2.VerifyResponse:
    return verifier_pb2.VerifyResponse(commits=commit_batch_to_wire(CommitBatch(named)))


@pytest.fixture
def journal() -> list[str]:
    return []


async def test_all_commits_of_a_step_are_on_their_way_before_drafts_and_those_before_text(journal: list[str]) -> None:
    a, b = Sequence("a", journal), Sequence("b", journal)
    senders = [asyncio.create_task(sequence.send_forwarded()) for sequence in (a, b)]
    await asyncio.sleep(0)
    verifier_dialect().dispatch(commits(Commit(1, 5, (1,)), Commit(2, 5, (1,))), {1: a, 2: b})
    await asyncio.gather(*senders)
    await asyncio.sleep(0)
    kinds = [line.split()[0] for line in journal]
    assert kinds == ["forward"] * 2 + ["send"] * 2 + ["propose"] * 2 + ["publish"] * 2


async def test_a_commit_that_a_sequence_does_not_take_goes_no_further(journal: list[str]) -> None:
    verifier_dialect().dispatch(commits(Commit(1, 0, (1,)), Commit(9, 5, (1,))), {1: Sequence("a", journal)})
    await asyncio.sleep(0)
    assert journal == ["forward a"]


@pytest.mark.parametrize("stage", ["forward", "propose", "publish"])
async def test_one_sequences_fault_leaves_the_others_alone(journal: list[str], stage: str) -> None:
    receivers = {1: Sequence("a", journal, fails_at=stage), 2: Sequence("b", journal)}
    verifier_dialect().dispatch(commits(Commit(1, 5, (1,)), Commit(2, 5, (1,))), receivers)
    await asyncio.sleep(0)
    assert "failure a: too slow" in journal
    assert "publish b" in journal


async def test_a_drafters_step_is_handed_to_each_sequence_once(journal: list[str]) -> None:
    batch = exchange_pb2.DraftBatch(drafts=[exchange_pb2.Draft(sequence_id=number) for number in (1, 2, 1, 9)])
    receivers = {1: Sequence("a", journal), 2: Sequence("b", journal)}
    DrafterDialect().dispatch(drafter_pb2.DraftResponse(drafts=batch), receivers)
    assert journal == ["2 drafts a", "1 drafts b"]


async def test_features_are_handed_on_as_they_came_and_one_sequences_fault_is_its_own(journal: list[str]) -> None:
    batch = exchange_pb2.FeatureBatch(
        features=[exchange_pb2.Features(sequence_id=number, start=number) for number in (1, 9, 2)]
    )
    told = "features from 1 on to"
    receivers = {1: Sequence("a", journal, fails_at=told), 2: Sequence("b", journal)}
    verifier_dialect().dispatch(verifier_pb2.VerifyResponse(features=batch), receivers)
    assert journal == [f"{told} a", "failure a: too slow", "features from 2 on to b"]


def test_a_drafter_hears_features_before_the_commits_that_came_with_them() -> None:
    features = exchange_pb2.Features(sequence_id=1, start=4, data=b"1234")
    messages = list(DrafterDialect().messages((), (), [Commit(1, 5, (1,)), features]))
    assert [message.WhichOneof("message") for message in messages] == ["features", "commits"]
    assert messages[0].features.features[0] == features


def test_a_verifier_is_asked_for_features_behind_the_opening_of_the_sequence() -> None:
    messages = list(verifier_dialect().messages((), (), [FeaturesWanted(1, 3)]))
    assert [message.features_wanted for message in messages] == [exchange_pb2.FeaturesWanted(sequence_id=1, start=3)]
