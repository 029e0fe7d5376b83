"""Builds a model from a checkpoint. Knows how the two fit together; nothing of caches or requests."""

from __future__ import annotations

from pathlib import Path

import torch

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import Checkpoint, SafetensorsCheckpoint, StoredTensor
from slipstream.models.config import ModelConfig
from slipstream.models.draft_checkpoint import SHARED, DraftCheckpoint, draft_tokens, is_draft_folder, target_folder
from slipstream.models.llama import LlamaModel
from slipstream.models.placement import place
from slipstream.models.weight_names import IGNORED_SUFFIXES, weight_slots
from slipstream.parallel.ranks import ALONE, Ranks


def open_checkpoint(path: Path, target: Path | None = None) -> Checkpoint:
    """A Hugging Face folder, a .gguf file, or a stored draft, whose target is `target` or found by its name."""
    if path.suffix == ".gguf":
        from slipstream.models.gguf_file import GGUFCheckpoint  # the gguf package is an extra

        return GGUFCheckpoint(path)
    if not path.is_dir():
        raise CheckpointError(f"{path}: is no model; give a Hugging Face folder or a .gguf file")
    if is_draft_folder(path):
        return DraftCheckpoint(path, open_checkpoint(target_folder(path, target)))
    return SafetensorsCheckpoint(path)


def load_config(checkpoint: Checkpoint) -> ModelConfig:
    """The model's configuration; CheckpointError names file and entry if it is not one we can run."""
    entries, generation = checkpoint.config(), checkpoint.generation_config()
    try:
        return ModelConfig.from_hf(entries, generation)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{checkpoint.path}: config: {error}") from error


def load_model(
    path: Path,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int = 0,
    *,
    target: Path | None = None,
    ranks: Ranks = ALONE,
) -> LlamaModel:
    """The model with its weights, in `dtype`. `max_model_len` is how far it will be used, 0 = as far as it goes.

    Of a model that several ranks hold only this rank's part is read. A draft of a reduced vocabulary gets a head of
    that many rows (see draft_checkpoint.py; `target` is as there).
    """
    checkpoint = open_checkpoint(path, target)
    config = load_config(checkpoint)
    _check_window(checkpoint.path, config, max_model_len or config.max_position_embeddings)
    with torch.device(device):
        model = LlamaModel(config, dtype, ranks)
    _fill(model, checkpoint)
    if (tokens := draft_tokens(path)) is not None:
        _check_tokens(path, tokens, config)
        model.reduce_head(tokens.to(device))
    return model.eval()


def _check_tokens(path: Path, tokens: torch.Tensor, config: ModelConfig) -> None:
    if not len(tokens) or int(tokens.min()) < 0 or int(tokens.max()) >= config.vocab_size:
        raise CheckpointError(
            f"{path}: d2t names ids outside 0..{config.vocab_size - 1}; entry i must be target id - i"
        )


def _check_window(path: Path, config: ModelConfig, max_model_len: int) -> None:
    if 0 < config.sliding_window < max_model_len:
        raise CheckpointError(
            f"{path}: sliding-window attention over {config.sliding_window} tokens is not supported; "
            f"set max_model_len (now {max_model_len}) to at most {config.sliding_window}, where it makes no difference"
        )


@torch.no_grad()
def _fill(model: LlamaModel, checkpoint: Checkpoint) -> None:
    slots = weight_slots(model.config, model.share)
    parameters = dict(model.named_parameters())
    missing = set(slots)
    for name, file, tensor in checkpoint.stored():
        if name.endswith(IGNORED_SUFFIXES) or (name == "lm_head.weight" and model.config.tie_word_embeddings):
            continue
        slot = slots.get(name)
        if slot is None:
            raise CheckpointError(f"{file}: tensor {name} is not part of a {model.config.model_type} model")
        if tuple(tensor.shape) != slot.shape:
            raise CheckpointError(_misfit(checkpoint, name, file, tensor, slot.shape))
        try:
            place(parameters[slot.parameter], slot, tensor, model.ranks.shard)
        except ValueError as error:
            raise CheckpointError(f"{file}: tensor {name} {error}") from error
        missing.discard(name)
    if missing:
        raise CheckpointError(f"{checkpoint.path}: tensor {min(missing)} is missing ({len(missing)} in all)")


def _misfit(checkpoint: Checkpoint, name: str, file: Path, tensor: StoredTensor, shape: tuple[int, ...]) -> str:
    if isinstance(checkpoint, DraftCheckpoint) and name in SHARED:
        return (
            f"{checkpoint.path}: is a draft for a target whose {name} is {list(shape)}; "
            f"that of {file} is {list(tensor.shape)}, so it is no draft for this target"
        )
    return f"{file}: tensor {name} has shape {list(tensor.shape)}, not {list(shape)}"
