"""A tritonserver whose draft model looks back as the n-gram proposer does. Knows tensors; no service of ours.

    python tests/e2e/pytriton_draft_server.py 127.0.0.1:8001 draft

Needs `nvidia-pytriton` in a virtual environment of its own (docs/operations.md). A real draft model takes the place of
`continuation`, and keeps the names and shapes of the tensors.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

sys.path.insert(0, str(Path(__file__).parents[2]))

from slipstream.proposers.ngram import NgramProposer

INPUTS = (
    Tensor(name="input_ids", dtype=np.int32, shape=(1, -1)),
    Tensor(name="input_lengths", dtype=np.int32, shape=(1, 1)),
    Tensor(name="request_output_len", dtype=np.int32, shape=(1, 1)),
)
OUTPUTS = (Tensor(name="output_ids", dtype=np.int32, shape=(1, -1)),)
NOTHING = -1  # no token's id, so it ends a draft: pytriton cannot answer with an empty tensor


def continuation(token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
    return NgramProposer(token_ids).propose(num_tokens)


def infer(requests: Sequence[Any]) -> list[dict[str, Any]]:
    """Each request holds one prefix; the answer to each is the tokens that follow it."""
    return [{"output_ids": _answer(request.data)} for request in requests]


def _answer(tensors: dict[str, Any]) -> Any:
    num_given = int(tensors["input_lengths"][0, 0])
    drafted = continuation(tensors["input_ids"][0, :num_given].tolist(), int(tensors["request_output_len"][0, 0]))
    return np.array([drafted or (NOTHING,)], np.int32)


def main(listen: str, model: str) -> None:
    host, _, port = listen.rpartition(":")
    with tempfile.TemporaryDirectory() as workspace:
        config = TritonConfig(grpc_address=host, grpc_port=int(port), http_address=host, http_port=int(port) + 1)
        config.allow_metrics = False
        with Triton(config=config, workspace=str(Path(workspace) / "models")) as triton:
            triton.bind(model, infer, list(INPUTS), list(OUTPUTS), config=ModelConfig(batching=False))
            triton.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
