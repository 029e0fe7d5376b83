"""What changes logits between the model's pass and verification: token rules, masks. Knows rows; nothing of models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slipstream.engine.graph_capture import Capture, Replay
from slipstream.engine.mask_buffers import MaskBuffers
from slipstream.engine.rule_buffers import RuleBuffers
from slipstream.kernels.token_mask import mask_tokens
from slipstream.kernels.token_rules import apply_token_rules
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.rule_rows import contexts_of, pack_rules, to_device
from slipstream.sampling.token_masks import token_masks


class LogitEdits:
    """Of steps that have any. Packed and filled while the GPU runs the pass, to which their kernels queue up."""

    def __init__(self, logits: torch.Tensor, capture: Capture) -> None:
        """`logits`: [most_rows, vocab], where passes write them."""
        most_rows, self._vocab_size = logits.shape
        self._logits, self._capture = logits, capture
        self._graphs: dict[int, Replay] = {}  # by rows
        self._rules = RuleBuffers(most_rows, logits.device)
        self._masks = MaskBuffers(most_rows, self._vocab_size, logits.device)

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    def clear(self) -> None:
        self._graphs.clear()

    def apply(self, checks: Sequence[SequenceCheck], num_rows: int) -> None:
        """To the logits of a step that is padded to so many rows."""
        self._apply_rules(checks, num_rows)
        masks = token_masks(checks, self._vocab_size)
        if masks is not None:
            mask_tokens(self._logits, *self._masks.upload(masks))

    def _apply_rules(self, checks: Sequence[SequenceCheck], num_rows: int) -> None:
        """Penalties and the like: one small graph, in steps that have any."""
        words = pack_rules(contexts_of(checks), self._vocab_size)
        if words is None:
            return
        if self._rules.holds(words):
            replay = self._graph(num_rows)
            self._rules.upload(words)
            replay()
        else:
            apply_token_rules(self._logits, to_device(words, self._logits.device))

    def _graph(self, num_rows: int) -> Replay:
        if num_rows not in self._graphs:
            table = self._rules.table(num_rows)
            table.spans.zero_()  # a capture runs once for real, and rules applied twice are not the same
            self._graphs[num_rows] = self._capture.capture(lambda: apply_token_rules(self._logits, table))
        return self._graphs[num_rows]
