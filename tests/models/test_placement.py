"""Each rank takes its part of a checkpoint, reads no other, and puts zeros where there is nothing more."""

from __future__ import annotations

from pathlib import Path

import torch

from slipstream.models.checkpoint import SafetensorsCheckpoint
from slipstream.models.placement import place
from slipstream.models.weight_names import Slot
from slipstream.parallel.shard import Shard
from tests.tiny_models import make_checkpoint

TENSOR = torch.arange(1.0, 16.0).view(5, 3)


class Indexed:
    """Notes what is read."""

    shape = TENSOR.shape

    def __init__(self) -> None:
        self.num_read = 0

    def __getitem__(self, index: tuple[slice, ...]) -> torch.Tensor:
        self.num_read += TENSOR[index].numel()
        return TENSOR[index]


def placed(slot: Slot, rank: int, shape: tuple[int, int]) -> tuple[torch.Tensor, int]:
    parameter, stored = torch.full(shape, -1.0), Indexed()
    place(parameter, slot, stored, Shard(rank, 2))
    return parameter, stored.num_read


def test_rows_are_divided_and_the_last_part_is_padded() -> None:
    slot = Slot("weight", (5, 3), start=1, piece=3)
    first, read_first = placed(slot, 0, (5, 3))
    second, read_second = placed(slot, 1, (5, 3))
    assert torch.equal(first[1:4], TENSOR[:3])
    assert torch.equal(second[1:4], torch.cat((TENSOR[3:], torch.zeros(1, 3))))
    assert (first[[0, 4]] == -1).all()
    assert (second[[0, 4]] == -1).all()
    assert (read_first, read_second) == (9, 6)


def test_columns_are_divided_and_the_last_part_is_padded() -> None:
    slot = Slot("weight", (5, 3), piece=2, axis=1)
    assert torch.equal(placed(slot, 0, (5, 2))[0], TENSOR[:, :2])
    second, num_read = placed(slot, 1, (5, 2))
    assert torch.equal(second, torch.cat((TENSOR[:, 2:], torch.zeros(5, 1)), 1))
    assert num_read == 5


def test_a_rank_beyond_the_end_gets_zeros_and_reads_nothing() -> None:
    part, num_read = placed(Slot("weight", (5, 3), piece=5), 1, (5, 3))
    assert not part.any()
    assert num_read == 0


def test_what_is_not_divided_goes_to_every_rank() -> None:
    for rank in range(2):
        assert torch.equal(placed(Slot("weight", (5, 3)), rank, (5, 3))[0], TENSOR)


def test_a_folder_gives_parts_of_its_tensors(tmp_path: Path) -> None:
    checkpoint = SafetensorsCheckpoint(make_checkpoint(tmp_path))
    whole = {name: tensor for name, _, tensor in checkpoint.tensors()}
    for name, _, stored in checkpoint.stored():
        assert list(stored.shape) == list(whole[name].shape)
        assert torch.equal(stored[(slice(2, 5),)], whole[name][2:5])
        if whole[name].dim() == 2:
            assert torch.equal(stored[(slice(None), slice(1, 4))], whole[name][:, 1:4])
