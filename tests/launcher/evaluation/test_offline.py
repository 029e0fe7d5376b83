"""A verifier and a drafter in one process: the target's text, whoever drafts, and no draft that is late."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.evaluation.asked import Asked, Candidate
from launcher.evaluation.offline import Pair, make_pair
from launcher.evaluation.report import Evaluation
from slipstream.config import EngineConfig
from slipstream.errors import CheckpointError, VocabularyMismatch
from slipstream.exchange import Commit
from slipstream.request import VerificationMode
from tests.models.eagle3_heads import make_head
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

PROMPTS = ["What grows in a pond?", "Count to ten."]
ASKED = Asked(num_draft_tokens=3, max_tokens=30)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("eval") / "target", layers=6, logit_std=3.0, pard_token=319)


@pytest.fixture(scope="module")
def pairs(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("drafts")
    similar = make_similar_checkpoint(target, folder / "similar", noise=0.05)
    folders = {"none": None, "ngram": None, "draft_model": similar, "pard": similar}
    folders["eagle3"] = make_head(folder / "head")
    return {name: pair(target, Candidate(proposer=name, folder=model)) for name, model in folders.items()}


def pair(target: Path, candidate: Candidate) -> Pair:
    return make_pair(
        EngineConfig(model=target, dtype="float32", num_kv_blocks=40, max_num_batched_tokens=32), candidate
    )


def text(answer: list[Commit]) -> list[int]:
    return [token_id for commit in answer for token_id in commit.token_ids]


SAMPLED = Asked(num_draft_tokens=3, max_tokens=30, temperature=1.0, mode=VerificationMode.COUPLED)


@pytest.mark.parametrize("asked", [ASKED, SAMPLED])
def test_the_text_is_the_targets_whoever_drafts(pairs: dict[str, Pair], asked: Asked) -> None:
    by_name = {name: list(one.answer(PROMPTS, asked)) for name, one in pairs.items()}
    plain = [text(answer) for answer in by_name["none"]]
    for name, found in by_name.items():
        assert [text(answer) for answer in found] == plain, name
        assert all(answer[0].num_draft_tokens == 0 for answer in found), "the prompt's own pass has no drafts"
    evaluations = {name: Evaluation.of_passes(name, found) for name, found in by_name.items()}
    for name in ("draft_model", "pard", "eagle3"):
        figures = evaluations[name].figures
        assert figures.num_drafts >= figures.num_passes - 2 * len(PROMPTS), "a draft was late"
    assert evaluations["none"].figures.num_drafts == 0
    assert evaluations["draft_model"].agreement > 0.3
    first = [evaluations[name].figures.acceptance_per_position[0] for name in ("draft_model", "pard")]
    assert first[1] > 0.3, "the first token of a block is a draft model's"


def test_a_drafter_that_cannot_serve_the_target_is_an_error(target: Path, tmp_path: Path) -> None:
    other = make_checkpoint(tmp_path / "other", vocab_size=300)
    with pytest.raises(VocabularyMismatch):
        list(pair(target, Candidate(proposer="draft_model", folder=other)).answer(PROMPTS, ASKED))
    with pytest.raises(CheckpointError, match="pard_token"):
        pair(target, Candidate(proposer="pard", folder=other))
