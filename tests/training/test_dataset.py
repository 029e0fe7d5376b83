"""Chats come back from disk as they were; batches go through all rows, epoch after epoch."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.training.dataset import batches, keep_rows, load_chats, save_chats
from slipstream.training.generate import Chats


def chats(rows: int, seed: int) -> Chats:
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(0, 200_000, (rows, 13), generator=generator, dtype=torch.int32)
    return Chats(token_ids, torch.rand(rows, 13, generator=generator) < 0.5)


def test_files_give_back_their_rows_in_order(tmp_path: Path) -> None:
    parts = [chats(3, 0), chats(2, 1)]
    files = [tmp_path / "chats_000.npz", tmp_path / "chats_001.npz"]
    for part, file in zip(parts, files, strict=True):
        save_chats(part, file)
    loaded = load_chats(files)
    assert torch.equal(loaded.token_ids, torch.cat([part.token_ids for part in parts]))
    assert torch.equal(loaded.answers, torch.cat([part.answers for part in parts]))
    assert sorted(tmp_path.iterdir()) == files


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "chats_000.npz"
    save_chats(chats(3, 0), file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"chats_000\.npz holds no chats"):
        load_chats([file])


def test_kept_rows_keep_their_marks() -> None:
    some = chats(3, 0)
    kept = keep_rows(some, torch.tensor([True, False, True]))
    assert torch.equal(kept.answers, some.answers[[0, 2]])


def test_an_epoch_holds_each_row_once_and_the_next_another_order() -> None:
    first, second, third, fourth = islice(batches(8, 4, seed=0, start=0), 4)
    assert sorted(torch.cat((first, second)).tolist()) == list(range(8))
    assert sorted(torch.cat((third, fourth)).tolist()) == list(range(8))
    assert torch.cat((first, second)).tolist() != torch.cat((third, fourth)).tolist()


def test_starting_in_the_middle_gives_what_would_have_come() -> None:
    whole = list(islice(batches(7, 2, seed=3, start=0), 9))
    assert [batch.tolist() for batch in islice(batches(7, 2, seed=3, start=5), 4)] == [b.tolist() for b in whole[5:]]


def test_fewer_rows_than_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows of chats are fewer than a batch of 4"):
        next(batches(3, 4, seed=0, start=0))
