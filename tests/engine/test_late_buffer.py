"""Words that are made when they are needed and copied as far as they are used."""

from __future__ import annotations

import torch

from slipstream.engine.late_buffer import LateBuffer

CPU = torch.device("cpu")


def test_only_the_first_words_are_copied() -> None:
    buffer = LateBuffer(5, CPU)
    buffer.host[:] = 7
    buffer.upload(3)
    assert buffer.on_device.tolist() == [7, 7, 7, 0, 0]
    assert buffer.on_device.dtype == torch.int32


def test_both_sides_stay_where_they_are_and_are_not_one() -> None:
    buffer = LateBuffer(5, CPU)
    host, on_device = buffer.host, buffer.on_device
    buffer.upload(5)
    assert (buffer.host.data_ptr(), buffer.on_device.data_ptr()) == (host.data_ptr(), on_device.data_ptr())
    assert host.data_ptr() != on_device.data_ptr()
