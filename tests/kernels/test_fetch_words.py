"""What was on the host is on the device afterwards."""

from __future__ import annotations

import torch

from slipstream.kernels.fetch_words import fetch_words


def test_every_word_arrives() -> None:
    on_device, on_host = torch.zeros(5, dtype=torch.int32), torch.arange(5, dtype=torch.int32)
    fetch_words(on_device, on_host)
    assert torch.equal(on_device, on_host)
