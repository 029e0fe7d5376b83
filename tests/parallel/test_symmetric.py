"""Which sums go through shared GPU memory, and how. The operators need GPUs; here fakes note how they are called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed._symmetric_memory as symmetric_memory

from slipstream.parallel.symmetric import BUFFER_BYTES, ONE_SHOT_BYTES, SymmetricAllReduce

CPU = torch.device("cpu")


class Calls:
    """Two ranks with equal numbers: a sum is twice what is there."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def one_shot(self, shared: torch.Tensor, x: torch.Tensor, operation: str, group: str) -> torch.Tensor:
        assert (operation, group, shared.shape, shared.dtype) == ("sum", "ranks", x.shape, x.dtype)
        self.names.append("one shot")
        return 2 * x

    def two_shot(self, shared: torch.Tensor, operation: str, group: str) -> torch.Tensor:
        assert (operation, group) == ("sum", "ranks")
        self.names.append("two shots")
        return shared.mul_(2)

    def beyond(self, x: torch.Tensor) -> torch.Tensor:
        self.names.append("group")
        return 2 * x


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(symmetric_memory, "empty", torch.empty)
    monkeypatch.setattr(symmetric_memory, "rendezvous", lambda buffer, group: None)
    monkeypatch.setattr(torch.ops.symm_mem, "one_shot_all_reduce_copy", calls.one_shot, raising=False)
    monkeypatch.setattr(torch.ops.symm_mem, "two_shot_all_reduce_", calls.two_shot, raising=False)
    return calls


@pytest.mark.parametrize(
    ("shape", "dtype", "way"),
    [
        ((1, 4096), torch.bfloat16, "one shot"),
        ((5, 8192), torch.float32, "one shot"),
        ((160, 8192), torch.bfloat16, "two shots"),
        ((1, ONE_SHOT_BYTES // 4), torch.float32, "one shot"),
        ((1, ONE_SHOT_BYTES // 4 + 8), torch.float32, "two shots"),
        ((1, BUFFER_BYTES // 4 + 8), torch.float32, "group"),
        ((3, 5), torch.float32, "group"),
        ((4, 64), torch.float16, "group"),
    ],
)
def test_size_decides_the_way_and_the_sum_is_the_same(
    calls: Calls, shape: tuple[int, int], dtype: torch.dtype, way: str
) -> None:
    group = SimpleNamespace(group_name="ranks", size=lambda: 2)
    all_reduce = SymmetricAllReduce(group, CPU, calls.beyond)
    x = torch.ones(shape, dtype=dtype)
    assert torch.equal(all_reduce(x), torch.full(shape, 2, dtype=dtype))
    assert calls.names == [way]


def test_the_operators_exist_and_none_of_them_multicasts() -> None:
    source = (SymmetricAllReduce.__call__, SymmetricAllReduce._one_shot)
    used = {name for function in source for name in function.__code__.co_names if "all_reduce" in name}
    assert used == {"one_shot_all_reduce_copy", "two_shot_all_reduce_"}
    arguments = [[a.name for a in getattr(torch.ops.symm_mem, name).default._schema.arguments] for name in sorted(used)]
    assert arguments == [
        ["symm_buffer", "local_input", "reduce_op", "group_name"],
        ["input", "reduce_op", "group_name"],
    ]
