"""How each kind of drafter is trained. Knows no tensors.

What all kinds have in common stands in each of them, so that a record of a training is one flat list of settings; it is
checked in one place.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.training.losses import Objective


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatSettings:
    """The text to learn from. Raises ValueError naming field and value."""

    chat_tokens: int = 25_165_824  # to be written by the target, prompts included
    length: int = 768  # tokens of each row
    batch: int = 4096  # rows written at once
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "chat_tokens", "length", "batch")


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftSettings:
    """A draft LM and how it is trained. Raises ValueError naming field and value."""

    num_layers: int = 4
    draft_vocab_size: int = 12288
    loss: str = "lk_hybrid"
    temperature: float = 1.0  # of the distributions that the loss compares
    train_tokens: int = 340_000_000  # fed in all, over as many epochs as it takes
    batch: int = 64  # rows of a step
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    loss_chunk: int = 8192  # tokens whose logits exist at a time
    num_draft_tokens: int = 5  # K of the reported acceptance
    compiled: bool = False  # faster on a GPU after half a minute; changes nothing else
    keep_states: bool = True  # the target's hidden states, from one epoch to the next, if they fit; changes only speed
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "num_layers", "draft_vocab_size")
        _check_learning(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Eagle3Settings:
    """An EAGLE-3 head and how it is trained. Raises ValueError naming field and value."""

    draft_vocab_size: int = 12288
    stored_vocab_size: int = 0  # tokens that the stored head may draft, more than it is trained with; 0 = as many
    unroll_steps: int = 6  # draft tokens after one commit that it learns to make
    step_decay: float = 0.8  # each counts so much less than the one before
    loss: str = "lk_hybrid"
    temperature: float = 1.0  # of the distributions that the loss compares
    train_tokens: int = 120_000_000  # fed in all, over as many epochs as it takes
    batch: int = 32  # rows of a step
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    loss_chunk: int = 8192  # tokens whose logits exist at a time
    num_draft_tokens: int = 5  # K of the reported acceptance
    shared_head: bool = False  # store int8 rows and no lm_head, for this project's loader only
    compiled: bool = False  # faster on a GPU after half a minute; changes nothing else
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "draft_vocab_size", "unroll_steps")
        _check_learning(self)
        if self.stored_vocab_size and self.stored_vocab_size < self.draft_vocab_size:
            raise ValueError(
                f"stored_vocab_size is {self.stored_vocab_size}; it must be 0 or >= draft_vocab_size, "
                f"{self.draft_vocab_size}"
            )
        if not 0 < self.step_decay <= 1:
            raise ValueError(f"step_decay is {self.step_decay}; it must be in (0, 1]")


@dataclass(frozen=True, kw_only=True, slots=True)
class PardSettings:
    """A parallel draft and how it is trained. Raises ValueError naming field and value."""

    num_layers: int = 4  # of one that begins as layers of the target; else it has those of its draft
    draft_vocab_size: int = 12288  # likewise
    num_parallel: int = 8  # draft tokens of one pass that it learns to make
    mask_weight: float = 0.5  # of a mask in the loss, a token's being 1: the higher, the less is it a draft LM
    mask_token: int = 16  # stands where they will; SmolLM2's `<empty_output>`, which no text holds
    loss: str = "lk_hybrid"
    temperature: float = 1.0  # of the distributions that the loss compares
    train_tokens: int = 120_000_000  # fed in all, masks not counted, over as many epochs as it takes
    batch: int = 32  # rows of a step
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    loss_chunk: int = 8192  # tokens whose logits exist at a time
    num_draft_tokens: int = 5  # K of the reported acceptance
    compiled: bool = False  # faster on a GPU after half a minute; changes nothing else
    keep_states: bool = True  # the target's hidden states, from one epoch to the next, if they fit; changes only speed
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "num_parallel", "num_layers", "draft_vocab_size")
        _check_learning(self)
        if not 0 < self.mask_weight <= 1:
            raise ValueError(f"mask_weight is {self.mask_weight}; it must be in (0, 1]")
        if self.mask_token < 0:
            raise ValueError(f"mask_token is {self.mask_token}; it must be a token id, >= 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSettings:
    """An adapter of a draft and how it is trained. Raises ValueError naming field and value."""

    rank: int = 16
    alpha: float = 32.0  # what is added counts alpha / rank
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    num_held_out: int = 30  # prompts of the kind that it is measured with and never sees
    loss: str = "lk_hybrid"
    temperature: float = 1.0  # of the distributions that the loss compares
    train_tokens: int = 8_000_000  # fed in all, over as many epochs as it takes
    batch: int = 32  # rows of a step
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    loss_chunk: int = 8192  # tokens whose logits exist at a time
    num_draft_tokens: int = 5  # K of the reported acceptance
    compiled: bool = False  # faster on a GPU after half a minute; changes nothing else
    keep_states: bool = True  # the target's hidden states, from one epoch to the next, if they fit; changes only speed
    seed: int = 0

    def __post_init__(self) -> None:
        _require_positive(self, "rank", "num_held_out")
        _check_learning(self)
        if not self.modules:
            raise ValueError("modules is empty; name at least one that the adapter changes")


DistillationSettings = DraftSettings | PardSettings | LoraSettings
LearningSettings = DistillationSettings | Eagle3Settings


def objective_of(settings: LearningSettings) -> Objective:
    return Objective(settings.loss, settings.temperature)


def _check_learning(settings: LearningSettings) -> None:
    """What all kinds have in common."""
    _require_positive(settings, "train_tokens", "batch", "loss_chunk", "num_draft_tokens")
    objective_of(settings)  # names a loss or a temperature that cannot be
    if not settings.learning_rate > 0 or settings.weight_decay < 0:
        raise ValueError(
            f"learning_rate is {settings.learning_rate}, weight_decay {settings.weight_decay}; "
            "they must be > 0 and >= 0"
        )


def _require_positive(settings: object, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}; it must be >= 1")
