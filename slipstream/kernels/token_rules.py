"""Changes logits by a table of token rules, penalties, bias, bad words: on a GPU by a kernel."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused
from slipstream.sampling.rule_rows import RuleTable
from slipstream.sampling.ruled_law import apply_token_rules as apply_token_rules_reference


def apply_token_rules(
    logits: torch.Tensor,  # [at least num_rows, vocab] fp32, changed in place
    table: RuleTable,
) -> None:
    """x = (x / scale if x > 0 else x * scale) + addend for each entry of a row; its own win over shared ones."""
    if fused(logits):
        from slipstream.kernels.gpu import token_rules as gpu

        gpu.apply_token_rules(logits, table)
    else:
        apply_token_rules_reference(logits, table)
