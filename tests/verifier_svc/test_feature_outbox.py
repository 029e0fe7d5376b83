"""A sequence that wants features is told them for every token that is final and computed, once, or again when asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from slipstream.config import EngineConfig
from slipstream.engine.feature_tap import FeatureSpan, FeatureTap
from slipstream.exchange import Commit, Features, FeaturesWanted
from slipstream.models.eagle3_checkpoint import feature_fingerprint, load_projection
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams, SequenceRequest
from tests.models.eagle3_heads import HIDDEN, make_head
from tests.tiny_models import make_checkpoint
from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.config import VerifierConfig
from verifier_svc.feature_outbox import MAX_BYTES, FeatureOutbox
from verifier_svc.service import make_verifier
from verifier_svc.verifier import Verifier

CPU = torch.device("cpu")
PROMPT = tuple(range(40, 63))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_checkpoint(tmp_path_factory.mktemp("target"), layers=6), make_head(tmp_path_factory.mktemp("head"))


class Reader:
    """Opens sequences and puts together what is told of each."""

    def __init__(self, folders: tuple[Path, Path], **engine: int) -> None:
        target, head = folders
        config = EngineConfig(
            model=target, features=head, dtype="float32", **({"num_kv_blocks": 40, "block_size": 4} | engine)
        )
        self.verifier: Verifier = make_verifier(VerifierConfig(engine=config))
        self.fingerprint = feature_fingerprint(head)
        self.rows: dict[int, dict[int, list[int]]] = {}
        self.token_ids: dict[int, list[int]] = {}
        self.cached: dict[int, int] = {}

    def open(
        self, sequence_id: int, *, features: str | None = None, max_tokens: int = 9, prompt_logprobs: bool = False
    ) -> None:
        self.rows[sequence_id], self.token_ids[sequence_id] = {}, list(PROMPT)
        request = SequenceRequest(
            sequence_id=sequence_id,
            token_ids=PROMPT,
            num_prompt_tokens=len(PROMPT),
            sampling=SamplingParams(
                temperature=0.0, max_tokens=max_tokens, ignore_eos=True, prompt_logprobs=prompt_logprobs
            ),
            num_draft_tokens=3,
            proposers=("ngram",),
            features=self.fingerprint if features is None else features,
        )
        self.verifier.handle((1, request))

    def run(self, num_steps: int = 100) -> None:
        for _ in range(num_steps):
            outputs = self.verifier.step() or []
            for output in outputs:
                for features in output.features:
                    self._take(features)
                for commit in output.commits.commits:
                    self._commit(commit)
            if self.verifier.next_wake() is None:
                return

    def told(self, sequence_id: int) -> torch.Tensor:
        """[num_tokens, HIDDEN], of tokens 0 and on without a gap."""
        rows = self.rows[sequence_id]
        assert sorted(rows) == list(range(len(rows)))
        bits = np.array([rows[position] for position in range(len(rows))], dtype=np.int16)
        return torch.from_numpy(bits).view(torch.bfloat16).float()

    def _take(self, features: Features) -> None:
        rows = np.frombuffer(features.data, np.int16).reshape(-1, HIDDEN)
        self.rows[features.sequence_id] |= {features.start + i: row.tolist() for i, row in enumerate(rows)}

    def _commit(self, commit: Commit) -> None:
        known = self.rows[commit.sequence_id]
        assert not known or len(known) == commit.base - 1 + commit.num_accepted + 1 or commit.finish_reason
        self.token_ids[commit.sequence_id] += commit.token_ids
        self.cached.setdefault(commit.sequence_id, commit.num_cached_tokens)


@torch.no_grad()
def expected(folders: tuple[Path, Path], token_ids: Sequence[int]) -> torch.Tensor:
    target, head = folders
    model = load_model(target, torch.float32, CPU)
    states = model.forward_dense_tapped(torch.tensor([list(token_ids)]), (2, 3, 3))[1]
    made: torch.Tensor = load_projection(head, torch.float32, CPU)(states)[0]
    return made


def check(reader: Reader, folders: tuple[Path, Path], sequence_id: int) -> None:
    told = reader.told(sequence_id)
    assert len(told) >= len(PROMPT)
    wanted = expected(folders, reader.token_ids[sequence_id])
    torch.testing.assert_close(told, wanted[: len(told)], rtol=0.02, atol=0.02)


def test_prompt_and_output_are_told_as_they_are_computed(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders, max_num_batched_tokens=8, max_num_seqs=4)  # a prompt in three pieces
    reader.open(1)
    reader.run(num_steps=2)
    assert 8 <= len(reader.rows[1]) < len(PROMPT)
    reader.run()
    check(reader, folders, 1)
    assert len(reader.rows[1]) > len(PROMPT) + 2


def test_a_prompt_that_is_scored_is_told_too(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders)
    reader.open(1, prompt_logprobs=True)
    reader.run()
    check(reader, folders, 1)


def test_what_the_prefix_cache_held_is_told_as_well(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders)
    reader.open(1)
    reader.run()
    reader.open(2)
    reader.run()
    assert reader.cached[2] == 20
    check(reader, folders, 2)


def test_blocks_computed_without_features_are_no_use_to_who_wants_them(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders)
    reader.open(1, features="")
    reader.run()
    assert not reader.rows[1]
    reader.open(2)
    reader.run()
    assert reader.cached[2] == 0
    check(reader, folders, 2)


def test_a_sequence_without_features_beside_one_with_them_is_told_none_and_answers_the_same(
    folders: tuple[Path, Path],
) -> None:
    alone, mixed = Reader(folders), Reader(folders)
    alone.open(1, features="")
    alone.run()
    mixed.open(1, features="")
    mixed.open(2)
    mixed.run()
    assert not mixed.rows[1]
    check(mixed, folders, 2)
    assert mixed.token_ids[1] == mixed.token_ids[2] == alone.token_ids[1]


def test_a_drafter_that_begins_anew_is_told_all_again_between_steps_too(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders)
    reader.open(1, max_tokens=40)
    reader.run(num_steps=6)
    told = reader.told(1)
    reader.rows[1] = {}
    reader.verifier.handle((1, FeaturesWanted(1, 0)))
    reader.run(num_steps=1)
    assert torch.equal(reader.told(1)[: len(told)], told)
    reader.verifier.handle((1, FeaturesWanted(2, 0)))  # of nobody: no matter


def test_a_preempted_sequence_goes_on_where_it_was(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders, num_kv_blocks=14)
    for sequence_id in (1, 2):
        reader.open(sequence_id, max_tokens=20)
    reader.run(num_steps=300)
    for sequence_id in (1, 2):
        check(reader, folders, sequence_id)


def test_features_for_another_head_are_not_made(folders: tuple[Path, Path]) -> None:
    reader = Reader(folders)
    reader.open(1, features="0" * 64)
    reader.run()
    assert not reader.rows[1]
    assert len(reader.token_ids[1]) == len(PROMPT) + 9


def test_a_long_prompt_is_told_in_pieces_that_fit_a_message() -> None:
    class Tap:
        size, fingerprint = 4096, "f"

        def read(self, spans: Sequence[FeatureSpan]) -> list[bytes]:
            return [bytes(2 * self.size * (span.end - span.start)) for span in spans]

    engine = SimpleNamespace(num_computed=75, table=SimpleNamespace(block_ids=[0]))
    active = SimpleNamespace(
        stream=3, request=SimpleNamespace(sequence_id=9), engine=engine, num_sent_features=5, key=(3, 9)
    )
    outbox = FeatureOutbox(cast(FeatureTap, Tap()))
    pieces = outbox.take([cast(ActiveSequence, active)])[3]
    assert [(piece.start, len(piece.data)) for piece in pieces] == [
        (5, MAX_BYTES),
        (37, MAX_BYTES),
        (69, 6 * 8192),
    ]
    assert active.num_sent_features == 75
    assert not outbox.take([cast(ActiveSequence, active)])
