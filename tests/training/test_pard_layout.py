"""The packed text shows every mask what it will see in the service: the text up to its anchor, and its own chain."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.pard_layout import ParallelLayout

MASK = 319
LENGTH, NUM_DRAFT_TOKENS = 12, 4


def drawn(length: int = LENGTH, num_draft_tokens: int = NUM_DRAFT_TOKENS) -> ParallelLayout:
    return ParallelLayout.drawn(length, num_draft_tokens, torch.Generator().manual_seed(3))


def packed_hidden(model: LlamaModel, layout: ParallelLayout, token_ids: torch.Tensor) -> torch.Tensor:
    packed = layout.pack(token_ids[None], MASK)
    return model.forward_dense(packed, layout.positions[None], layout.visible())[0]


@torch.no_grad()
def test_each_chain_is_as_if_its_masks_followed_the_text_up_to_their_anchor(target: LlamaModel) -> None:
    token_ids = torch.arange(40, 40 + LENGTH)
    layout = drawn()
    hidden = packed_hidden(target, layout, token_ids)
    num_compared = 0
    for anchor in range(LENGTH):
        rows = [int(i) for i in (layout.anchors == anchor).nonzero()]
        masks = [MASK] * (len(rows) - 1)
        alone = target.forward_dense(torch.tensor([[*token_ids[: anchor + 1].tolist(), *masks]]))[0, anchor:]
        torch.testing.assert_close(hidden[rows], alone, rtol=1e-4, atol=1e-5)
        num_compared += len(masks)
    assert num_compared == len(layout.anchors) - LENGTH


@torch.no_grad()
def test_a_mask_that_saw_one_token_more_would_show(target: LlamaModel) -> None:
    token_ids, layout = torch.arange(40, 40 + LENGTH), drawn()
    visible = layout.visible()
    right = packed_hidden(target, layout, token_ids)
    seen = visible | (
        (layout.groups > 0)[:, None] & (layout.groups == 0) & (layout.anchors == layout.anchors[:, None] + 1)
    )
    wrong = target.forward_dense(layout.pack(token_ids[None], MASK), layout.positions[None], seen)[0]
    assert torch.equal(wrong[:LENGTH], right[:LENGTH])
    assert not torch.allclose(wrong[LENGTH:], right[LENGTH:], rtol=1e-3, atol=1e-3)


def test_fewer_anchors_have_each_further_mask_down_to_a_fifth_and_no_chain_has_a_gap() -> None:
    layout = drawn(length=1000, num_draft_tokens=8)
    counts = layout.groups.bincount().tolist()
    assert counts == [1000, 700, 490, 343, 240, 200, 200, 200]
    for group in range(2, 8):
        before = set(layout.anchors[layout.groups == group - 1].tolist())
        assert set(layout.anchors[layout.groups == group].tolist()) <= before


def test_a_mask_stands_its_groups_number_after_its_anchor() -> None:
    layout = ParallelLayout.of(3, [torch.tensor([2, 0]), torch.tensor([2])])
    assert layout.positions.tolist() == [0, 1, 2, 3, 1, 4]
    assert layout.pack(torch.tensor([[7, 8, 9]]), MASK).tolist() == [[7, 8, 9, MASK, MASK, MASK]]


def test_without_masks_the_text_is_seen_as_ever(target: LlamaModel) -> None:
    layout, token_ids = ParallelLayout.complete(LENGTH, 1), torch.arange(40, 40 + LENGTH)
    assert torch.equal(layout.visible(), torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
    assert torch.equal(layout.pack(token_ids[None], MASK)[0], token_ids)
