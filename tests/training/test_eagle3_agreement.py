"""Agreement is said of every place where drafting can begin, and of no token past the text."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.eagle3_agreement import agreements
from slipstream.training.eagle3_head import FreshHead
from slipstream.training.eagle3_unroll import unroll

TOKENS = torch.arange(0, 320)


@torch.no_grad()
def test_a_text_that_follows_the_drafts_agrees_and_one_that_does_not_disagrees(target: LlamaModel) -> None:
    head = FreshHead(target, TOKENS, torch.Generator().manual_seed(1))
    text = torch.arange(60, 72)
    for end in range(5, 12):  # token by token what the head itself drafts first
        states = target.forward_dense_tapped(text[None, :end], head.config.layer_ids)[1]
        features = head.features(states).bfloat16().float()
        z = unroll(head.model, features, text[None, :end], 1)[0]
        text[end] = head.model.logits(z[0, end - 2]).argmax()
    other = text.clone()
    other[8] = (other[8] + 1) % 320
    agree, disagree = agreements(head, target, TOKENS, torch.stack((text, other)), 3)
    assert agree[5:, 0].all()
    assert not disagree[8, 0]
    assert not disagree[7, 1]


def test_nothing_is_drafted_before_two_tokens_or_past_the_text(target: LlamaModel) -> None:
    head = FreshHead(target, TOKENS, torch.Generator().manual_seed(1))
    text = torch.zeros(1, 9, dtype=torch.long)
    (agree,) = agreements(head, target, TOKENS, text, 3)
    assert not agree[:2].any()
    assert not agree[8, 1:].any()
    assert not agree[7, 2]
