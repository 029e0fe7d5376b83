"""Token rules on a GPU change the logits as the reference does."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.token_rules import apply_token_rules
from slipstream.sampling.rule_rows import pack_rules, to_device
from slipstream.sampling.ruled_law import apply_token_rules as apply_token_rules_reference
from tests.sampling.random_rules import random_contexts


@pytest.mark.parametrize(("vocab_size", "num_prompt_tokens"), [(37, 20), (2000, 1500)])
def test_logits_are_changed_as_the_reference_changes_them(
    vocab_size: int, num_prompt_tokens: int, device: torch.device
) -> None:
    contexts = random_contexts(4, vocab_size, num_sequences=3, num_prompt_tokens=num_prompt_tokens)
    logits = torch.randn(len(contexts), vocab_size, generator=torch.Generator().manual_seed(0)) * 3
    logits[:, ::5] = -torch.inf
    words = pack_rules(contexts, vocab_size)
    assert words is not None
    changed, expected = logits.clone().to(device), logits.clone()
    apply_token_rules(changed, to_device(words, device))
    apply_token_rules_reference(expected, to_device(words, torch.device("cpu")))
    torch.testing.assert_close(changed.cpu(), expected, atol=2e-6, rtol=1e-6)
    assert (expected != logits).any(-1).sum() > len(contexts) / 2


def test_rows_without_rules_and_rows_beyond_the_table_stay_as_they_are(device: torch.device) -> None:
    contexts = random_contexts(1, 50, num_sequences=2, num_prompt_tokens=9)
    bare = [type(context)(None, ()) for context in contexts[:2]] + contexts[2:]
    words = pack_rules(bare, 50)
    assert words is not None
    logits = torch.randn(len(bare) + 3, 50, generator=torch.Generator().manual_seed(0))
    changed = logits.clone().to(device)
    apply_token_rules(changed, to_device(words, device))
    assert torch.equal(changed[:2].cpu(), logits[:2])
    assert torch.equal(changed[-3:].cpu(), logits[-3:])
