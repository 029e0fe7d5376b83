"""Acceptance measured offline in training is what the drafter itself reaches, over its paged cache and step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafter_svc.proposers.draft_model import DraftModel, load_draft_model
from drafter_svc.proposers.proposer import Drawing, Row
from slipstream.config import EngineConfig, default_model_dir
from slipstream.models.draft_checkpoint import draft_tokens, save_draft, target_folder
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.request import SamplingParams, VerificationMode
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_model import draft_from_target
from slipstream.training.held_out import HeldOut, read_prompts
from slipstream.training.master_weights import MasterWeights
from tests.tiny_models import make_checkpoint

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "drafters" / "smollm2-135m-instruct-draft"
NUM_DRAFT_TOKENS = 5
GREEDY = Drawing(
    sampling=SamplingParams(temperature=0.0), mode=VerificationMode.RATIO, seed=0, draft_key=0, sample_index=0
)


def drafted(drafter: DraftModel, held_out: HeldOut) -> Acceptance:
    """Drafts for every held-out answer as a server would: K tokens past what is committed, on from the verdict."""
    drafts, accepted_at = 0, [0] * NUM_DRAFT_TOKENS
    for row, (first, end) in zip(held_out.token_ids.tolist(), held_out.spans, strict=True):
        committed = first + 1
        while committed < end:
            num_accepted = _accepted(drafter, row, committed, end)
            for position in range(num_accepted):
                accepted_at[position] += 1
            drafts += 1
            committed += num_accepted + 1
    return Acceptance(drafts, tuple(accepted_at))


def _accepted(drafter: DraftModel, row: list[int], committed: int, end: int) -> int:
    context, fed = row[:committed], 0
    for count in range(min(NUM_DRAFT_TOKENS, end - committed)):
        ((proposal,),) = drafter.propose(
            [
                Row(
                    token_ids=context[fed:],
                    start=fed,
                    block_ids=range(drafter.limits.num_blocks),
                    drawing=GREEDY,
                    draw=count,
                    num_wanted=1,
                    num_outcomes=1,
                )
            ]
        )
        fed = len(context)
        context.append(proposal.token.token_id)
        if context[-1] != row[fed]:
            return count
    return min(NUM_DRAFT_TOKENS, end - committed)


def measured(
    draft: Path, target: Path, questions: list[tuple[int, ...]], tokens: int, dtype: str
) -> tuple[float, float]:
    """Mean acceptance length offline, and by the drafter."""
    tokenizer, cpu = Tokenizer.from_folder(target), torch.device("cpu")
    torch_dtype: torch.dtype = getattr(torch, dtype)
    target_model = load_model(target, torch_dtype, cpu)
    held_out = HeldOut.written_by(target_model, ChatFrame.of(tokenizer), questions, answer_tokens=tokens)
    vocabulary = draft_tokens(draft)
    assert vocabulary is not None
    offline = held_out.acceptance(load_model(draft, torch_dtype, cpu, target=target), vocabulary, NUM_DRAFT_TOKENS)
    engine = EngineConfig(model=draft, target_model=target, dtype=dtype, num_kv_blocks=32)
    drafter = load_draft_model(engine, num_target_ids=tokenizer.vocab_size, num_kept=32)
    return offline.length, drafted(drafter, held_out).length


def test_offline_acceptance_is_the_drafters(tmp_path: Path) -> None:
    target = make_checkpoint(tmp_path / "target", layers=3, tie_word_embeddings=True, logit_std=4.0)
    target_model = load_model(target, torch.float32, torch.device("cpu"))
    tokens = torch.arange(0, 320, 2)
    draft_model = draft_from_target(target_model, (0, 1, 2), tokens)
    weights = MasterWeights.of_draft(draft_model).weights
    save_draft(tmp_path / "draft", open_checkpoint(target).config(), weights, tokens, "target")
    questions = [tuple(range(60, 66)), tuple(range(80, 84)), (70, 71, 72)]
    offline, by_the_drafter = measured(tmp_path / "draft", target, questions, 40, "float32")
    assert offline == by_the_drafter
    assert 1.2 < offline < 1 + NUM_DRAFT_TOKENS


@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_shipped_draft_lm_drafts_well(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_folder(SHIPPED)
    assert target == default_model_dir() / "smollm2-135m-instruct"
    tokenizer = Tokenizer.from_folder(target)
    prompts = read_prompts(ROOT / "bench" / "prompts" / "chat_eval.jsonl")[:4]
    questions = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
    offline, by_the_drafter = measured(SHIPPED, target, questions, 32, "float32")
    assert by_the_drafter == pytest.approx(offline, abs=0.02)
    assert offline > 1.9  # 2.69 over all 40 prompts of 128 tokens
