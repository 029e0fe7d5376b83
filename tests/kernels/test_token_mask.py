"""Masks remove exactly the tokens whose bits are not set."""

import torch

from slipstream.kernels.token_mask import mask_tokens


def test_a_token_stays_where_its_bit_is_set_and_other_rows_stay_whole() -> None:
    logits = torch.arange(70.0).repeat(3, 1)
    bits = torch.tensor([[1 << 5, -(2**31), 1 << 3]], dtype=torch.int32)  # tokens 5, 63 and 67
    mask_tokens(logits, torch.tensor([1], dtype=torch.int32), bits)
    assert logits[1].isfinite().nonzero()[:, 0].tolist() == [5, 63, 67]
    assert logits[1, [5, 63, 67]].tolist() == [5, 63, 67]
    assert torch.equal(logits[[0, 2]], torch.arange(70.0).repeat(2, 1))
