"""Writes vectors.json: noise worked out in plain Python integers and doubles, sharing no code with slipstream.

Run from the repository root:  python tests/sampling/make_vectors.py > tests/sampling/vectors.json
"""

from __future__ import annotations

import json
import math
import sys

WORD = 0xFFFFFFFF
STREAMS = {"DRAFT": 0, "ACCEPT": 1, "RESIDUAL": 2, "KEY": 3}
CASES = [
    # key, position, sample index, stream, draw, token
    (0, 0, 0, "RESIDUAL", 0, 0),
    (0, 0, 0, "RESIDUAL", 0, 1),
    (0, 0, 0, "ACCEPT", 0, 0),
    (0, 0, 0, "DRAFT", 0, 0),
    (1, 7, 0, "RESIDUAL", 0, 6),
    (0x0123456789ABCDEF, 1000, 3, "RESIDUAL", 0, 49151),
    (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, "RESIDUAL", 0, 151935),
    (0x8000000000000000, 42, 1, "ACCEPT", 0, 0),
    (0x8000000080000000, 42, 1, "DRAFT", 1, 0),
    (0xDEADBEEF, 131071, 0, "DRAFT", 0xFFFFFF, 0),
]
DERIVED = [(0, 0), (1, 2), (0xFFFFFFFFFFFFFFFF, 0x0123456789ABCDEF), (0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFF)]


def philox(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key & WORD, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD, (p0 >> 32) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def noise_case(key: int, position: int, sample_index: int, stream: str, draw: int, token: int) -> dict[str, object]:
    counter = (token >> 2, position, STREAMS[stream] | draw << 8, sample_index)
    word = philox(counter, key)[token & 3]
    uniform = ((word >> 9) + 0.5) * 2.0**-23
    return {
        "key": key,
        "position": position,
        "sample_index": sample_index,
        "stream": stream,
        "draw": draw,
        "token": token,
        "word": word,
        "uniform": uniform,
        "gumbel": -math.log(-math.log(uniform)),
    }


def derived_case(seed: int, nonce: int) -> dict[str, int]:
    words = philox((nonce & WORD, nonce >> 32, STREAMS["KEY"], 0), seed)
    return {"seed": seed, "nonce": nonce, "key": words[0] | words[1] << 32}


def main() -> None:
    vectors = {
        "noise": [noise_case(*case) for case in CASES],
        "derived_keys": [derived_case(*case) for case in DERIVED],
    }
    json.dump(vectors, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
