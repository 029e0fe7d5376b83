"""Reads and writes EAGLE-3 heads in the format of `LlamaForCausalLMEagle3`. Knows files and names; no equations.

A folder holds config.json (eagle3_config.py) and model.safetensors, or pytorch_model.bin, with

    fc.weight                                           [hidden, 3 * target hidden], absent without auxiliary states
    midlayer.{input_layernorm,hidden_norm,post_attention_layernorm}.weight                       [hidden]
    midlayer.self_attn.{q,k,v}_proj.weight              [., 2 * hidden]
    midlayer.self_attn.o_proj.weight, midlayer.mlp.{gate,up,down}_proj.weight
    norm.weight                                         [hidden]
    lm_head.weight                                      [draft vocab, hidden]; absent = the target's
    embed_tokens.weight                                 [vocab, hidden]; absent = the target's
    d2t                                                 int64 [draft vocab]: draft token i is token i + d2t[i]
    t2d                                                 bool [vocab]: which tokens those are

d2t and t2d may be absent if the draft vocabulary is the whole one. Ours may hold matrices as int8 rows (int8_rows.py).
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import WEIGHTS, Checkpoint, SafetensorsCheckpoint, read_json
from slipstream.models.eagle3 import Eagle3Model, FeatureProjection
from slipstream.models.eagle3_config import ARCHITECTURE, Eagle3Config
from slipstream.models.int8_rows import as_int8_rows, whole
from slipstream.models.saving import save_weights
from slipstream.models.weight_names import Slot

FC: Final = "fc.weight"
HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "embed_tokens.weight"
TO_TARGET: Final = "d2t"
IN_DRAFT: Final = "t2d"
PICKLED: Final = "pytorch_model.bin"

Stored = dict[str, tuple[Path, torch.Tensor]]  # by name: the file that holds it, and itself


def is_eagle3_folder(path: Path) -> bool:
    file = path / "config.json"
    return file.is_file() and ARCHITECTURE in (read_json(file).get("architectures") or ())


def load_eagle3_config(path: Path) -> Eagle3Config:
    file = path / "config.json"
    try:
        return Eagle3Config.from_hf(read_json(file))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{file}: {error}") from error


def load_eagle3(
    path: Path, dtype: torch.dtype, device: torch.device, target: Checkpoint | None = None
) -> tuple[Eagle3Model, torch.Tensor | None]:
    """The head, and the target's ids of its vocabulary [draft vocab], None if that is the whole one.

    `target` lends the embedding or the logits' rows if the head has none of its own.
    """
    config = load_eagle3_config(path)
    stored = _read(path)
    _check_shapes(config, stored)
    target_ids = _target_ids(path, config, stored)
    with torch.device(device):
        model = Eagle3Model(config, dtype)
    _fill(model, path, stored)
    _fill_shared(model, path, stored, target, target_ids)
    return model.eval(), None if target_ids is None else target_ids.to(device)


def load_projection(path: Path, dtype: torch.dtype, device: torch.device) -> FeatureProjection:
    """What makes the head's features, without the head."""
    config = load_eagle3_config(path)
    stored = _read(path, FC)
    _check_shapes(config, stored)
    if FC not in stored and config.projected_size != config.hidden_size:
        raise CheckpointError(f"{path}: tensor {FC} is missing")
    with torch.device(device):
        projection = FeatureProjection(config, dtype, with_fc=FC in stored)
    fill_projection(projection, {name: tensor for name, (_, tensor) in stored.items()})
    return projection.eval()


@torch.no_grad()
def fill_projection(projection: FeatureProjection, weights: Mapping[str, torch.Tensor]) -> None:
    if projection.fc is not None:
        projection.fc.weight.copy_(weights[FC])


def feature_fingerprint(path: Path) -> str:
    """Names what makes the head's features, for both ends to compare: fed with others' it only drafts badly."""
    config, stored = load_eagle3_config(path), _read(path, FC)
    digest = hashlib.sha256(repr((config.use_aux_hidden_state, config.layer_ids)).encode())
    for _, weight in stored.values():
        digest.update(weight.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


def save_eagle3(
    folder: Path,
    config: Eagle3Config,
    weights: Mapping[str, torch.Tensor],  # by name; lm_head and embed_tokens only if they are the head's own
    target_ids: torch.Tensor | None,  # [draft vocab]; None = the whole vocabulary
    dtype: torch.dtype | None = torch.bfloat16,  # None = matrices as int8 rows, the others in fp32
) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if dtype is None and weight.dim() == 2:
            tensors |= as_int8_rows(name, weight)
        else:
            tensors[name] = weight.detach().to("cpu", dtype or torch.float32).contiguous()
    if target_ids is not None:
        ids = target_ids.cpu()
        tensors[TO_TARGET] = ids - torch.arange(len(ids))
        tensors[IN_DRAFT] = torch.zeros(config.layer.vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(tensors, folder / WEIGHTS)
    entries = config.to_hf() | {"torch_dtype": str(dtype or torch.bfloat16).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def weight_slots(config: Eagle3Config) -> dict[str, Slot]:
    """Which rows of which parameter each tensor fills, of those that every head has."""
    layer = config.layer
    hidden, inner = layer.hidden_size, layer.intermediate_size
    queries, keys = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    vectors = {
        "midlayer.input_layernorm": "layer.input_norm",
        "midlayer.hidden_norm": "layer.hidden_norm",
        "midlayer.post_attention_layernorm": "layer.mlp_norm",
        "norm": "norm",
    }
    attention, mlp = "layer.attention", "layer.mlp"
    matrices = {
        "midlayer.self_attn.q_proj": Slot(f"{attention}.qkv_proj.weight", (queries, 2 * hidden)),
        "midlayer.self_attn.k_proj": Slot(f"{attention}.qkv_proj.weight", (keys, 2 * hidden), queries),
        "midlayer.self_attn.v_proj": Slot(f"{attention}.qkv_proj.weight", (keys, 2 * hidden), queries + keys),
        "midlayer.self_attn.o_proj": Slot(f"{attention}.o_proj.weight", (hidden, queries)),
        "midlayer.mlp.gate_proj": Slot(f"{mlp}.gate_up_proj.weight", (inner, hidden)),
        "midlayer.mlp.up_proj": Slot(f"{mlp}.gate_up_proj.weight", (inner, hidden), inner),
        "midlayer.mlp.down_proj": Slot(f"{mlp}.down_proj.weight", (hidden, inner)),
    }
    slots = {name: Slot(f"{parameter}.weight", (hidden,)) for name, parameter in vectors.items()} | matrices
    return {f"{name}.weight": slot for name, slot in slots.items()}


def _optional_shapes(config: Eagle3Config) -> dict[str, tuple[int, ...]]:
    hidden, vocab, draft_vocab = config.hidden_size, config.layer.vocab_size, config.draft_vocab_size
    return {
        FC: (hidden, config.projected_size),
        HEAD: (draft_vocab, hidden),
        EMBEDDING: (vocab, hidden),
        TO_TARGET: (draft_vocab,),
        IN_DRAFT: (vocab,),
    }


def _check_shapes(config: Eagle3Config, stored: Stored) -> None:
    shapes = _optional_shapes(config) | {name: slot.shape for name, slot in weight_slots(config).items()}
    for name, (file, tensor) in stored.items():
        if name not in shapes:
            raise CheckpointError(f"{file}: tensor {name} is not part of an EAGLE-3 head")
        if tuple(tensor.shape) != shapes[name]:
            raise CheckpointError(f"{file}: tensor {name} has shape {list(tensor.shape)}, not {list(shapes[name])}")


def _target_ids(path: Path, config: Eagle3Config, stored: Stored) -> torch.Tensor | None:
    if TO_TARGET not in stored:
        if config.draft_vocab_size < config.layer.vocab_size:
            raise CheckpointError(
                f"{path}: tensor {TO_TARGET} is missing; a draft vocabulary of {config.draft_vocab_size} of "
                f"{config.layer.vocab_size} tokens needs it"
            )
        return None
    file, offsets = stored[TO_TARGET]
    if offsets.is_floating_point():
        raise CheckpointError(f"{file}: tensor {TO_TARGET} is {offsets.dtype}; it must be whole numbers")
    ids = offsets.long() + torch.arange(len(offsets))
    if int(ids.min()) < 0 or int(ids.max()) >= config.layer.vocab_size:
        raise CheckpointError(
            f"{file}: tensor {TO_TARGET} names ids outside 0..{config.layer.vocab_size - 1}; "
            "entry i must be target id - i"
        )
    if len(set(ids.tolist())) < len(ids):
        raise CheckpointError(f"{file}: tensor {TO_TARGET} names a token twice; entry i must be target id - i")
    return ids


@torch.no_grad()
def _fill(model: Eagle3Model, path: Path, stored: Stored) -> None:
    slots = weight_slots(model.config)
    if missing := sorted(slots.keys() - stored.keys()):
        raise CheckpointError(f"{path}: tensor {missing[0]} is missing ({len(missing)} in all)")
    parameters = dict(model.named_parameters())
    for name, slot in slots.items():
        parameters[slot.parameter][slot.start : slot.start + slot.shape[0]].copy_(stored[name][1])


@torch.no_grad()
def _fill_shared(
    model: Eagle3Model, path: Path, stored: Stored, target: Checkpoint | None, target_ids: torch.Tensor | None
) -> None:
    """Embedding and head, its own or the target's."""
    for name, parameter in ((EMBEDDING, model.embedding), (HEAD, model.head)):
        if name in stored:
            parameter.copy_(stored[name][1])
            continue
        if target is None:
            raise CheckpointError(f"{path}: has no {name} of its own; give the target model's folder, whose it shares")
        shared = _shared(target, name)
        rows = shared[target_ids] if name == HEAD and target_ids is not None else shared
        if rows.shape != parameter.shape:
            raise CheckpointError(
                f"{path}: has no {name} of its own, and that of the target {target.path} makes "
                f"{list(rows.shape)}, not {list(parameter.shape)}; it is no head for this target"
            )
        parameter.copy_(rows)


def _shared(target: Checkpoint, name: str) -> torch.Tensor:
    """The target's tensor; of tied embeddings the head is the embedding."""
    tied = bool(target.config().get("tie_word_embeddings", False))
    wanted = HEAD if name == HEAD and not tied else f"model.{EMBEDDING}"
    for found, _, tensor in target.tensors():
        if found == wanted:
            return tensor
    raise CheckpointError(f"{target.path}: tensor {wanted} is missing")


def _read(path: Path, only: str = "") -> Stored:
    return {name: (file, tensor) for name, file, tensor in whole(_tensors(path)) if only in ("", name)}


def _tensors(path: Path) -> Iterator[tuple[str, Path, torch.Tensor]]:
    file = path / PICKLED
    if (path / WEIGHTS).exists() or not file.exists():
        yield from SafetensorsCheckpoint(path).tensors()
        return
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{file}: is truncated or corrupt ({error}); fetch it again") from error
    yield from ((name, file, tensor) for name, tensor in tensors.items())
