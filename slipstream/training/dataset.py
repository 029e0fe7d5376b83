"""Chats on disk and in batches. Knows files and order; nothing of how they were written or are learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from slipstream.errors import CheckpointError
from slipstream.training.generate import Chats
from slipstream.training.storing import storing


def save_chats(chats: Chats, path: Path) -> None:
    """Written under another name first: a file of that name is always whole."""
    partial = path.with_suffix(".partial")
    with storing(path), partial.open("wb") as file:
        np.savez(
            file,
            token_ids=chats.token_ids.numpy().astype(np.uint32),
            answers=np.packbits(chats.answers.numpy(), axis=1),
        )
    partial.rename(path)


def load_chats(paths: Sequence[Path]) -> Chats:
    parts = [_load(path) for path in paths]
    return Chats(torch.cat([part.token_ids for part in parts]), torch.cat([part.answers for part in parts]))


def _load(path: Path) -> Chats:
    try:
        with np.load(path) as arrays:
            token_ids, packed = arrays["token_ids"], arrays["answers"]
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise CheckpointError(f"{path} holds no chats: {error}") from error
    answers = np.unpackbits(packed, axis=1, count=token_ids.shape[1])
    return Chats(torch.from_numpy(token_ids.astype(np.int32)), torch.from_numpy(answers.astype(np.bool_)))


def keep_rows(chats: Chats, keep: torch.Tensor) -> Chats:
    return Chats(chats.token_ids[keep], chats.answers[keep])


def batches(num_rows: int, batch: int, seed: int, start: int) -> Iterator[torch.Tensor]:
    """Row indices of batch number `start`, `start` + 1 and so on without end; each epoch has an order of its own."""
    per_epoch = num_rows // batch
    if per_epoch == 0:
        raise ValueError(f"{num_rows} rows of chats are fewer than a batch of {batch}; write more or lower --batch")
    while True:
        epoch, first = divmod(start, per_epoch)
        order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        for index in range(first, per_epoch):
            yield order[index * batch : (index + 1) * batch]
        start = (epoch + 1) * per_epoch
