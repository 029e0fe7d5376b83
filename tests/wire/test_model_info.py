"""What a service says of itself comes out as it went in."""

from __future__ import annotations

from slipstream.exchange import ModelInfo
from slipstream.wire.model_info import model_info_from_wire, model_info_to_wire


def test_model_info_comes_back_as_it_was() -> None:
    info = ModelInfo(
        name="m",
        vocabulary_hash="ff",
        vocab_size=10,
        max_model_len=64,
        stop_token_ids=(2,),
        proposers=("eagle3",),
        features="c" * 64,
        max_num_seqs=64,
    )
    assert model_info_from_wire(model_info_to_wire(info)) == info
