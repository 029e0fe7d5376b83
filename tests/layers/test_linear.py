"""Matrix products with weights, packed for the CPU or not."""

import pytest
import torch
from torch.nn import functional

from slipstream.layers.linear import Linear, can_pack, padded_size


def make_linear(bias: bool, dtype: torch.dtype) -> Linear:
    linear = Linear(24, 40, bias, dtype)
    for parameter in linear.parameters():
        torch.nn.init.normal_(parameter)
    return linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 4, 17, 33, 65])
def test_packed_and_plain_weights_give_the_same(bias: bool, num_tokens: int) -> None:
    linear, x = make_linear(bias, torch.float32), torch.randn(num_tokens, 24)
    with torch.inference_mode():
        plain = linear(x)
        torch.testing.assert_close(plain, functional.linear(x, linear.weight, linear.bias))
        linear.pack()
        torch.testing.assert_close(linear(x), plain, atol=1e-4, rtol=1e-4)


def test_packing_gives_up_the_plain_weight() -> None:
    linear = make_linear(False, torch.float32)
    linear.pack()
    assert linear.weight.numel() == 0


def test_only_cpu_weights_of_a_fitting_kind_are_packed() -> None:
    assert can_pack(torch.device("cpu"), torch.float32)
    assert not can_pack(torch.device("cpu"), torch.float16)
    assert not can_pack(torch.device("meta"), torch.float32)


def test_batches_of_all_sizes_are_products_of_few_shapes() -> None:
    sizes = {num_rows: padded_size(num_rows) for num_rows in range(1, 513)}
    assert len(set(sizes.values())) <= 33
    assert all(num_rows <= size <= max(4, num_rows * 1.5) for num_rows, size in sizes.items())
    assert all(padded_size(size) == size for size in sizes.values())
