"""A matrix product with an optional bias, packed for the CPU on demand. Knows nothing of what it computes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from slipstream.kernels.linear import linear
from slipstream.kernels.low_rank import RowGroups
from slipstream.layers.low_rank import LowRank
from slipstream.parallel.ranks import Ranks

PACKED_FOR_ROWS = 16  # oneDNN lays the weight out for so many tokens; other counts run as fast
FAST_ROWS = 4  # one or two tokens take longer than four (bench/layers/linear.py), so they are padded
EXACT_ROWS = 16  # up to here every number of rows is a shape of its own
STRIDES = ((64, 8), (1 << 30, 32))  # (up to so many rows, padded to multiples of)


class Linear(nn.Module):
    """x @ weight.T + bias, and what adapters add for their rows.

    `pack()` gives up the plain weight for one that oneDNN reads twice as fast.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype))  # [out, in]
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype)) if bias else None
        self.low_rank: LowRank | None = None  # where there may be adapters
        self._packed: torch.Tensor | None = None

    def pack(self) -> None:
        """Lays the weight out in oneDNN's blocked order: from then on inference only, on this CPU only."""
        self._packed = pack_weight(self.weight)
        self.weight = nn.Parameter(self.weight.new_empty(0), requires_grad=False)

    def forward(self, x: torch.Tensor, adapted: RowGroups | None = None) -> torch.Tensor:
        output = self.product(x, self.bias)
        if adapted is not None:
            assert self.low_rank is not None, "rows of an adapter, and no room for any"
            self.low_rank.add_to(output, x, adapted)
        return output

    def product(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self._packed is None:
            return linear(x, self.weight, bias)
        return packed_linear(x, self._packed, bias)


class SummedLinear(Linear):
    """A product whose inputs are divided over ranks: each adds its part, and all get the sum."""

    def __init__(self, in_features: int, out_features: int, bias: bool, dtype: torch.dtype, ranks: Ranks) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self._ranks = ranks

    def forward(self, x: torch.Tensor, adapted: RowGroups | None = None) -> torch.Tensor:
        assert adapted is None, "several ranks run no adapters"
        summed = self._ranks.sum(self.product(x, None))
        return summed if self.bias is None else summed + self.bias  # once, not once a rank


def make_summed_linear(in_features: int, out_features: int, bias: bool, dtype: torch.dtype, ranks: Ranks) -> Linear:
    """Of one rank's inputs; where there is one rank, nothing is summed."""
    if ranks.shard.size == 1:
        return Linear(in_features, out_features, bias, dtype)
    return SummedLinear(in_features, out_features, bias, dtype, ranks)


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
    padded = pad_rows(x, padded_size(num_rows)) if x.dim() == 2 else x
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(padded, packed, bias, "none", [], "")
    return result if padded is x else result[:num_rows]


def padded_size(num_rows: int) -> int:
    """How many rows a product takes instead: few different numbers.

    For each one oneDNN compiles a product and keeps it, half a megabyte for every weight's shape: batches of all sizes
    would cost a step some milliseconds now and then, and a quarter of a gigabyte in the end.
    """
    if num_rows <= EXACT_ROWS:
        return max(num_rows, FAST_ROWS)
    stride = next(stride for most, stride in STRIDES if num_rows <= most)
    return -(-num_rows // stride) * stride


def pad_rows(x: torch.Tensor, num_rows: int) -> torch.Tensor:
    """x [rows, size] with rows of zeros after its own, if it has fewer than `num_rows`."""
    missing = num_rows - x.shape[0]
    return functional.pad(x, (0, 0, 0, missing)) if missing > 0 else x
