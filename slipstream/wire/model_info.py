"""What a service says of its model and how full it is, as a message and back. Knows no service."""

from __future__ import annotations

from slipstream.exchange import ModelInfo
from slipstream.wire.arrays import ids_from_wire, ids_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def model_info_to_wire(info: ModelInfo) -> pb.ModelInfo:
    return pb.ModelInfo(
        name=info.name,
        vocabulary_hash=info.vocabulary_hash,
        vocab_size=info.vocab_size,
        max_model_len=info.max_model_len,
        stop_token_ids=ids_to_wire(info.stop_token_ids),
        dtype=info.dtype,
        device=info.device,
        version=info.version,
        kv_blocks_total=info.kv_blocks_total,
        kv_block_size=info.kv_block_size,
        kv_blocks_used=info.kv_blocks_used,
        num_sequences=info.num_sequences,
        proposers=info.proposers,
        features=info.features,
        max_num_seqs=info.max_num_seqs,
        process=info.process,
    )


def model_info_from_wire(message: pb.ModelInfo) -> ModelInfo:
    return ModelInfo(
        name=message.name,
        vocabulary_hash=message.vocabulary_hash,
        vocab_size=message.vocab_size,
        max_model_len=message.max_model_len,
        stop_token_ids=ids_from_wire(message.stop_token_ids, "stop_token_ids"),
        dtype=message.dtype,
        device=message.device,
        version=message.version,
        kv_blocks_total=message.kv_blocks_total,
        kv_block_size=message.kv_block_size,
        kv_blocks_used=message.kv_blocks_used,
        num_sequences=message.num_sequences,
        proposers=tuple(message.proposers),
        features=message.features,
        max_num_seqs=message.max_num_seqs,
        process=message.process,
    )
