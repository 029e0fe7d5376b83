"""The plain rotary embedding, and where keys and values are written."""

import cmath

import torch

from slipstream.kernels.rotary import rotary, write_kv
from slipstream.layers.rotary import RotaryEmbedding
from slipstream.models.config import RopeConfig


def test_each_pair_turns_by_its_own_angle() -> None:
    head_dim, positions = 8, torch.tensor([0, 3, 500])
    x = torch.randn(3, 2, head_dim)
    rotated = rotary(x, *RotaryEmbedding(RopeConfig(theta=100.0), head_dim)(positions, torch.float32))
    for token, position in enumerate(positions.tolist()):
        for head in range(2):
            for i in range(head_dim // 2):
                turned = complex(x[token, head, i], x[token, head, i + 4]) * cmath.exp(1j * position * 100 ** (-i / 4))
                got = complex(rotated[token, head, i], rotated[token, head, i + 4])
                assert abs(got - turned) < 1e-3


def test_scores_depend_only_on_the_distance() -> None:
    embedding = RotaryEmbedding(RopeConfig(), 16)
    query, key = torch.randn(2, 1, 1, 16)

    def score(query_at: int, key_at: int) -> torch.Tensor:
        turned = [
            rotary(x, *embedding(torch.tensor([at]), torch.float32)) for x, at in ((query, query_at), (key, key_at))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(9, 4), score(105, 100), atol=1e-3, rtol=1e-3)


def test_keys_and_values_land_in_their_slots_and_nowhere_else() -> None:
    keys, values = torch.randn(2, 3, 2, 4)
    key_cache, value_cache = torch.zeros(2, 5, 4, 2, 4)
    write_kv(keys, values, key_cache, value_cache, torch.tensor([7, 0, 18]))
    for new, cache in ((keys, key_cache), (values, value_cache)):
        assert torch.equal(torch.stack([cache[1, 3], cache[0, 0], cache[4, 2]]), new)
        assert cache.count_nonzero() == new.count_nonzero()
