"""The fetching kernel brings every word, also what the host wrote between two replays of one graph."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.fetch_words import BLOCK, fetch_words


@pytest.mark.parametrize("num_words", [1, 5, BLOCK, 3 * BLOCK + 7])
def test_every_word_arrives_and_no_other_is_written(num_words: int, device: torch.device) -> None:
    on_host = torch.randint(-(1 << 31), 1 << 31, (num_words,)).int()
    on_host = on_host.pin_memory() if device.type == "cuda" else on_host
    on_device = torch.full((num_words + 1,), 7, dtype=torch.int32, device=device)
    fetch_words(on_device[:num_words], on_host)
    assert torch.equal(on_device[:num_words].cpu(), on_host)
    assert on_device[num_words] == 7


@pytest.mark.gpu
@pytest.mark.parametrize("num_words", [40, 20_000])
def test_a_graph_fetches_what_the_host_wrote_last(num_words: int, device: torch.device) -> None:
    on_host = torch.zeros(num_words, dtype=torch.int32, pin_memory=True)
    on_device = torch.zeros(num_words, dtype=torch.int32, device=device)
    fetch_words(on_device, on_host)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fetch_words(on_device, on_host)
        doubled = on_device * 2
    for replay in range(20):
        on_host.copy_(torch.arange(num_words) + replay)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(doubled.cpu(), on_host * 2), replay
