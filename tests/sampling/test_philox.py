"""The noise is what its description says, down to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.sampling.philox import Stream, derive_key, gumbel, philox4x32, random_words, uniform

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())

# Published known answers of Philox4x32-10: counter, key, output.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, words", KNOWN_ANSWERS)
def test_philox_gives_the_published_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) for word in key)
    assert tuple(int(word) for word in philox4x32((c0, c1, c2, c3), (k0, k1))) == words


@pytest.mark.parametrize("case", VECTORS["noise"])
def test_every_noise_vector_is_reproduced(case: dict[str, Any]) -> None:
    word = random_words(
        case["key"],
        case["position"],
        case["sample_index"],
        Stream[case["stream"]],
        token_ids=case["token"],
        draws=case["draw"],
    )
    assert int(word) == case["word"]
    assert float(uniform(word)) == case["uniform"]
    assert float(gumbel(word)) == pytest.approx(case["gumbel"], abs=2e-6)


@pytest.mark.parametrize("case", VECTORS["derived_keys"])
def test_every_derived_key_vector_is_reproduced(case: dict[str, int]) -> None:
    assert derive_key(case["seed"], case["nonce"]) == case["key"]


def test_a_word_does_not_depend_on_what_it_is_computed_with() -> None:
    tokens = np.arange(37)
    together = random_words(5, 11, 2, Stream.RESIDUAL, token_ids=tokens)
    alone = [int(random_words(5, 11, 2, Stream.RESIDUAL, token_ids=token)) for token in tokens]
    assert together.tolist() == alone


def test_uniform_never_reaches_its_ends() -> None:
    ends = uniform(np.array([0, 0xFFFFFFFF], dtype=np.uint32))
    assert ends.tolist() == [2.0**-24, 1 - 2.0**-24]
    assert np.isfinite(gumbel(np.array([0, 0xFFFFFFFF], dtype=np.uint32))).all()


def test_streams_draws_samples_positions_and_keys_all_give_other_words() -> None:
    words = {
        int(random_words(key, position, sample_index, stream, draws=draw))
        for key in (0, 1 << 32)
        for position in (0, 1)
        for sample_index in (0, 1)
        for stream in Stream
        for draw in (0, 1)
    }
    assert len(words) == 2 * 2 * 2 * len(Stream) * 2


def test_a_draw_too_large_for_the_counter_is_refused() -> None:
    with pytest.raises(ValueError, match="draw is 16777216"):
        random_words(0, 0, 0, Stream.DRAFT, draws=1 << 24)
