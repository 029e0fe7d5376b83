"""The drafter with adapters: each sequence drafts with its own from beginning to end, branches too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch

from drafter_svc.adapters import AdapterAnswer, ListAdapters, LoadAdapter, UnloadAdapter
from drafter_svc.events import AdapterOrdered, Closed, StreamEnded
from drafter_svc.proposers.draft_model import DraftModel
from drafter_svc.proposers.proposer import Limits
from slipstream.errors import UnknownModel
from slipstream.exchange import AdapterList, Draft, DraftBatch, SequenceFailure
from slipstream.kernels.batch import Chunk
from slipstream.request import SequenceRequest
from tests.drafter_svc.scripted import (
    STREAM,
    ScriptedRunner,
    ScriptedVerifier,
    Setup,
    context_logits,
    drafts_in,
    request,
    token_choice,
)


@dataclass(frozen=True)
class Weights:
    salt: int
    rank: int = 8


@dataclass
class Store:
    """Slots whose adapters change what the scripted model says."""

    num_slots: int = 2
    bytes_per_slot: int = 1
    salts: dict[int, int] = field(default_factory=dict)

    def fill(self, slot: int, adapter: Weights) -> None:
        self.salts[slot] = adapter.salt


class AdaptedRunner(ScriptedRunner):
    """Answers each row as its adapter would."""

    store: Store

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        rows = []
        for chunk in chunks:
            salt = 0 if chunk.adapter is None else self.store.salts[chunk.adapter]
            self.logits = lambda context, salt=salt: context_logits(context, salt)  # type: ignore[misc]
            rows.append(super().forward([chunk]))
        return torch.cat(rows)


@dataclass
class Adapted(Setup):
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        self.proposer = self._proposer
        super().__post_init__()

    def _proposer(self, runner: ScriptedRunner, limits: Limits) -> DraftModel:
        adapted = AdaptedRunner(limits)
        adapted.store = self.store
        return DraftModel(adapted, limits, token_choice(), self.store)  # type: ignore[arg-type]

    def order(self, order: LoadAdapter | UnloadAdapter | ListAdapters) -> AdapterAnswer:
        self.drafter.handle(AdapterOrdered(99, order))
        (answer,) = [message for stream, message in self.outputs() if stream == 99]
        assert isinstance(answer, AdapterAnswer)
        return answer


def load(name: str, salt: int) -> LoadAdapter:
    return LoadAdapter(name, name, Weights(salt))


def asked(sequence_id: int, adapter: str) -> SequenceRequest:
    return replace(request([sequence_id, 2, 3, 4, 5], sequence_id=sequence_id, temperature=0.0), adapter=adapter)


@pytest.fixture
def setup() -> Adapted:
    setup = Adapted()
    setup.order(load("legal", 1))
    setup.order(load("code", 2))
    return setup


SALTS = {"": 0, "legal": 1, "code": 2}


def likeliest(salt: int) -> Callable[[Sequence[int]], int]:
    return lambda context: int(context_logits(context, salt).argmax())


def is_drafted_by(draft: Draft, committed: Sequence[int], salt: int) -> bool:
    """Whether the drawn tokens are those of the scripted model with this adapter."""
    ids = [token.token_id for token in draft.tokens]
    drawn = [i for i, token in enumerate(draft.tokens) if token.kind != 0]
    return all(ids[i] == likeliest(salt)([*committed, *ids[:i]]) for i in drawn)


def test_sequences_in_one_batch_draft_with_their_own_adapters_round_after_round(setup: Adapted) -> None:
    requests = {i: asked(i, name) for i, name in enumerate(SALTS, start=1)}
    verifiers = {i: ScriptedVerifier(opened) for i, opened in requests.items()}
    for opened in requests.values():
        setup.open(opened)
    for _ in range(4):
        drafts = setup.drafts()
        assert {draft.sequence_id for draft in drafts} == set(requests)
        for draft in drafts:
            salt = SALTS[requests[draft.sequence_id].adapter]
            assert is_drafted_by(draft, verifiers[draft.sequence_id].committed, salt)
        for i, verifier in verifiers.items():
            verifier.insert([draft for draft in drafts if draft.sequence_id == i])
            setup.commit(verifier.run_pass())


def test_one_whose_adapter_is_not_loaded_is_refused_by_name_and_the_others_go_on(setup: Adapted) -> None:
    setup.open(asked(1, "mail"))
    setup.open(asked(2, "legal"))
    said = setup.outputs()
    (failure,) = [message for _, message in said if isinstance(message, SequenceFailure)]
    assert failure.sequence_id == 1
    assert isinstance(failure.error, UnknownModel)
    assert "'mail'" in str(failure.error)
    assert {draft.sequence_id for draft in drafts_in([pair for pair in said if isinstance(pair[1], DraftBatch)])} == {2}
    setup.order(load("mail", 3))
    setup.open(asked(1, "mail"))
    assert all(is_drafted_by(draft, asked(1, "").token_ids, 3) for draft in setup.drafts())


def test_an_adapter_is_in_use_until_its_sequence_ends_however_it_ends(setup: Adapted) -> None:
    def num_sequences() -> int:
        outcome = setup.order(ListAdapters()).outcome
        assert isinstance(outcome, AdapterList)
        return {info.name: info.num_sequences for info in outcome.adapters}["legal"]

    setup.open(asked(1, "legal"))
    assert num_sequences() == 1
    setup.open(replace(asked(1, "legal"), epoch=1))  # again: the one before has ended
    assert num_sequences() == 1
    setup.drafter.handle(Closed(STREAM, 1))
    assert num_sequences() == 0
    setup.open(asked(1, "legal"))
    setup.drafter.handle(StreamEnded(STREAM))
    assert num_sequences() == 0


def test_a_running_sequence_keeps_an_adapter_that_is_unloaded(setup: Adapted) -> None:
    opened = asked(1, "legal")
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    verifier.insert(setup.drafts())
    setup.order(UnloadAdapter("legal"))
    setup.order(load("mail", 3))  # not in its place
    setup.commit(verifier.run_pass())
    assert all(is_drafted_by(draft, verifier.committed, 1) for draft in setup.drafts())
