"""A matrix product with an optional bias, packed for the CPU on demand. Knows nothing of what it computes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from slipstream.kernels.linear import linear

PACKED_FOR_ROWS = 16  # oneDNN lays the weight out for so many tokens; other counts run as fast
FAST_ROWS = 4  # one or two tokens take longer than four (bench/layers/linear.py), so they are padded


class Linear(nn.Module):
    """x @ weight.T + bias. `pack()` gives up the plain weight for one that oneDNN reads twice as fast."""

    def __init__(self, in_features: int, out_features: int, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype))  # [out, in]
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype)) if bias else None
        self._packed: torch.Tensor | None = None

    def pack(self) -> None:
        """Lays the weight out in oneDNN's blocked order: from then on inference only, on this CPU only."""
        self._packed = pack_weight(self.weight)
        self.weight = nn.Parameter(self.weight.new_empty(0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is None:
            return linear(x, self.weight, self.bias)
        return packed_linear(x, self._packed, self.bias)


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packed weights work here and pay."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack_weight(weight: torch.Tensor) -> torch.Tensor:
    """The weight as an opaque oneDNN tensor, in the layout that suits batches of few tokens."""
    with torch.inference_mode():
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight.default(weight.detach(), PACKED_FOR_ROWS)
    return packed


def packed_linear(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x @ weight.T + bias with a weight from `pack_weight`."""
    num_rows = x.shape[0]
    padded = pad_rows(x, FAST_ROWS) if x.dim() == 2 else x
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(padded, packed, bias, "none", [], "")
    return result if padded is x else result[:num_rows]


def pad_rows(x: torch.Tensor, num_rows: int) -> torch.Tensor:
    """x [rows, size] with rows of zeros after its own, if it has fewer than `num_rows`."""
    missing = num_rows - x.shape[0]
    return functional.pad(x, (0, 0, 0, missing)) if missing > 0 else x
