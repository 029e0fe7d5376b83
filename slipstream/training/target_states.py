"""The target's hidden states for batches of rows, kept from one epoch to the next if there is room. Knows no draft."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel


class TargetStates:
    """Each row is needed once an epoch, and the target costs more than the draft: where memory allows, run it once."""

    def __init__(self, target: LlamaModel, token_ids: torch.Tensor, batch: int, *, keep: bool) -> None:
        self._target, self._token_ids = target, token_ids
        self._kept = self._run_all(batch) if keep and self._fits() else None

    @torch.no_grad()
    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, length, hidden]"""
        if self._kept is not None:
            return self._kept[rows]
        return self._target.forward_dense(self._token_ids[rows].long())

    def _fits(self) -> bool:
        if self._token_ids.device.type != "cuda":
            return True
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self._token_ids.device)
        state_bytes = self._target.config.hidden_size * self._target.embedding.dtype.itemsize
        return self._token_ids.numel() * state_bytes < free // 2

    @torch.no_grad()
    def _run_all(self, batch: int) -> torch.Tensor:
        shape = (*self._token_ids.shape, self._target.config.hidden_size)
        kept = torch.empty(shape, dtype=self._target.embedding.dtype, device=self._token_ids.device)
        last = max(0, len(kept) - batch)
        for start in range(0, len(kept), batch):
            rows = slice(min(start, last), start + batch)  # the last batch as large as all others: compiled for that
            kept[rows] = self._target.forward_dense(self._token_ids[rows].long())
        return kept
