"""Chain by chain, a pass over a text with masks gives what the whole matrix of visible keys gives."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.pard_forward import packed_hidden
from slipstream.training.pard_layout import ParallelLayout

MASK, LENGTH = 319, 20


def test_hidden_states_are_those_of_the_whole_matrix(target: LlamaModel) -> None:
    layout = ParallelLayout.drawn(LENGTH, 5, torch.Generator().manual_seed(2))
    token_ids = torch.randint(3, 300, (3, LENGTH), generator=torch.Generator().manual_seed(4))
    packed = layout.pack(token_ids, MASK)
    expected = target.forward_dense(packed, layout.positions.expand_as(packed), layout.visible())
    hidden = packed_hidden(target, layout, token_ids, MASK)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-5)
    shifted = ParallelLayout(layout.anchors.roll(1), layout.groups, layout.sizes)
    wrong = packed_hidden(target, shifted, token_ids, MASK)
    assert not torch.allclose(wrong, expected, rtol=1e-2, atol=1e-2)
