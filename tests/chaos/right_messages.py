"""What each RPC takes when all is well: what fuzzing starts from. A new RPC needs its entry here."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from slipstream.wire.v1 import drafter_pb2, exchange_pb2, generation_pb2, verifier_pb2


def right_messages(method: MethodDescriptor, vocabulary_hash: str) -> list[Message]:
    """What the method takes; all are about sequence 1 where they are about one."""
    sampling = exchange_pb2.Sampling(temperature=1.0, top_p=1.0, max_tokens=8, ignore_eos=True)
    opened = exchange_pb2.Open(
        sequence_id=1, token_ids=struct.pack("<3i", 5, 6, 7), num_prompt_tokens=3, sampling=sampling,
        mode=exchange_pb2.VERIFICATION_MODE_RATIO, num_draft_tokens=4, fan_out=4, proposers=["draft_model"],
        vocabulary_hash=vocabulary_hash,
    )  # fmt: skip
    update = exchange_pb2.Update(sequence_id=1, num_draft_tokens=2, fan_out=1, max_wait_us=1000)
    close = exchange_pb2.Close(sequence_id=1)
    draft = exchange_pb2.Draft(
        sequence_id=1, base=4, proposer="draft_model", token_ids=struct.pack("<2i", 5, 6), law_kinds=b"\2\1",
        law_sizes=struct.pack("<H", 2), law_token_ids=struct.pack("<2i", 5, 6),
        law_counts=struct.pack("<2H", 16384, 16384),
    )  # fmt: skip
    commit = exchange_pb2.Commit(sequence_id=1, base=3, token_ids=struct.pack("<2i", 5, 6), num_accepted=1)
    prompt = generation_pb2.Prompt(token_ids=generation_pb2.TokenIds(ids=[5, 6, 7]))
    chat = generation_pb2.ChatMessages(messages=[generation_pb2.ChatMessage(role="user", content="ab")])
    prompts = [prompt, generation_pb2.Prompt(text="ab"), generation_pb2.Prompt(chat=chat)]
    asked: dict[str, Any] = {
        "temperature": 1.0,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "max_tokens": 8,
        "seed": 1,
        "stop": ["zz"],
    }
    batches = exchange_pb2.DraftBatch(drafts=[draft]), exchange_pb2.CommitBatch(commits=[commit])
    by_type: dict[type[Message], list[Message]] = {
        generation_pb2.GenerateRequest: [generation_pb2.GenerateRequest(prompt=one, **asked) for one in prompts],
        generation_pb2.TokenizeRequest: [generation_pb2.TokenizeRequest(prompt=one) for one in prompts],
        generation_pb2.ListModelsRequest: [generation_pb2.ListModelsRequest()],
        exchange_pb2.GetModelRequest: [exchange_pb2.GetModelRequest()],
        verifier_pb2.GetTokenizerRequest: [verifier_pb2.GetTokenizerRequest(known_hash="ab")],
        verifier_pb2.VerifyRequest: [
            verifier_pb2.VerifyRequest(open=opened), verifier_pb2.VerifyRequest(drafts=batches[0]),
            verifier_pb2.VerifyRequest(update=update), verifier_pb2.VerifyRequest(close=close),
        ],
        drafter_pb2.DraftRequest: [
            drafter_pb2.DraftRequest(open=opened), drafter_pb2.DraftRequest(commits=batches[1]),
            drafter_pb2.DraftRequest(update=update), drafter_pb2.DraftRequest(close=close),
        ],
        drafter_pb2.LoadAdapterRequest: [drafter_pb2.LoadAdapterRequest(name="a", path="a")],
        drafter_pb2.UnloadAdapterRequest: [drafter_pb2.UnloadAdapterRequest(name="a")],
        drafter_pb2.ListAdaptersRequest: [drafter_pb2.ListAdaptersRequest()],
    }  # fmt: skip
    return by_type[GetMessageClass(method.input_type)]
