"""A row of the unrolled pass is what the head gives when it drafts from that place token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.models.eagle3 import Eagle3Model
from slipstream.models.eagle3_checkpoint import load_eagle3
from slipstream.training.eagle3_unroll import unroll
from tests.models.eagle3_heads import HIDDEN, make_head

CPU = torch.device("cpu")
TIME, STEPS = 14, 4
TOKENS = torch.arange(40, 40 + TIME)


@pytest.fixture
def head(tmp_path: Path) -> Eagle3Model:
    return load_eagle3(make_head(tmp_path), torch.float32, CPU)[0]


@torch.no_grad()
def drafted(head: Eagle3Model, features: torch.Tensor, anchor: int) -> list[torch.Tensor]:
    """Outputs after tokens 0 to anchor + 1 became final, fed on with the text."""
    cache = KVCache(head.config.layer, 1, 64, torch.float32, CPU)
    z, outputs = features[: anchor + 1], []
    start, tokens = 0, TOKENS[1 : anchor + 2].tolist()
    for step in range(STEPS):
        batch = ForwardBatch.build([Chunk(tokens, start, [0], 1)], 64, CPU)
        z = head(batch, z, cache)[-1:]
        outputs.append(z[0])
        start, tokens = anchor + 1 + step, TOKENS[anchor + 2 + step : anchor + 3 + step].tolist()
    return outputs


@torch.no_grad()
def test_every_row_of_every_step_is_that_of_drafting_step_by_step(head: Eagle3Model) -> None:
    features = torch.randn(TIME, HIDDEN, generator=torch.Generator().manual_seed(3))
    outputs = unroll(head, features[None], TOKENS[None], STEPS)
    for anchor in (0, 1, 5, TIME - 2 - STEPS):
        for z, expected in zip(outputs, drafted(head, features, anchor), strict=True):
            torch.testing.assert_close(z[0, anchor], expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_batch_do_not_see_each_other(head: Eagle3Model) -> None:
    features = torch.randn(2, TIME, HIDDEN, generator=torch.Generator().manual_seed(4))
    tokens = torch.stack((TOKENS, TOKENS.flip(0)))
    both = unroll(head, features, tokens, 3)
    alone = unroll(head, features[1:], tokens[1:], 3)
    for z, expected in zip(both, alone, strict=True):
        torch.testing.assert_close(z[1:], expected, rtol=1e-4, atol=1e-5)
