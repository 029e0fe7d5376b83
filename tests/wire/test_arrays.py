"""Arrays on the wire: byte order and alignment."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import InvalidRequest
from slipstream.wire import arrays


def test_token_ids_travel_as_little_endian_int32() -> None:
    assert arrays.ids_to_wire([1, 258]) == b"\x01\0\0\0\x02\x01\0\0"
    assert arrays.ids_from_wire(b"\x01\0\0\0\x02\x01\0\0", "token_ids") == (1, 258)


def test_no_token_ids_are_no_bytes() -> None:
    assert arrays.ids_to_wire(()) == b""
    assert arrays.ids_from_wire(b"", "token_ids") == ()


def test_half_a_number_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="law_counts is 3 bytes long"):
        arrays.read(b"\0\0\0", arrays.COUNT, "law_counts")


def test_joined_arrays_read_back_as_one() -> None:
    parts = [np.asarray([1, 2]), np.asarray([], np.int64), np.asarray([3], ">i4")]
    assert arrays.ids_from_wire(arrays.join(parts, arrays.ID), "law_token_ids") == (1, 2, 3)


def test_laws_may_hold_more_entries_together_than_one_size_can_say() -> None:
    sizes = np.full(3, 60000, arrays.COUNT)  # their sum does not fit in the 16 bits of one size
    token_ids = np.tile(np.arange(60000, dtype=arrays.ID), 3)
    counts = np.ones(180000, arrays.COUNT)
    assert [law.token_ids.size for law in arrays.split_laws(sizes, token_ids, counts)] == [60000] * 3


def test_an_id_beyond_32_bits_cannot_be_sent() -> None:
    with pytest.raises(InvalidRequest, match="token id 4294967296 does not fit"):
        arrays.ids_to_wire([1, 1 << 32])
