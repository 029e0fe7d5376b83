"""How a drafter may draft: one file per proposer, all behind the protocol in proposer.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drafter_svc.config import DrafterConfig
from drafter_svc.proposers import draft_model, eagle3, pard
from drafter_svc.proposers.looped import LoopLimits
from drafter_svc.proposers.proposer import Proposer
from slipstream.engine.step_choice import StepKind

NAMES: Final[Sequence[str]] = (draft_model.NAME, eagle3.NAME, pard.NAME)


def make_proposer(config: DrafterConfig, num_target_ids: int) -> Proposer:
    """The proposer that the configuration names, loaded. `num_target_ids`: entries of the shared vocabulary."""
    loop = _loop_limits(config) if config.wants_loop else None
    if config.proposer == draft_model.NAME:
        return draft_model.load_draft_model(
            config.engine, num_target_ids=num_target_ids, num_kept=config.num_kept, adapters=config.adapters, loop=loop
        )
    if config.proposer == eagle3.NAME:
        return eagle3.load_looped_eagle3_drafts(
            config.engine, num_target_ids=num_target_ids, num_kept=config.num_kept, loop=loop
        )
    if config.proposer == pard.NAME:
        return pard.load_parallel_draft(
            config.engine, num_target_ids=num_target_ids, num_kept=config.num_kept, loop=loop
        )
    raise ValueError(f"proposer is {config.proposer!r}; it must be one of {', '.join(NAMES)}")


def _loop_limits(config: DrafterConfig) -> LoopLimits:
    return LoopLimits(max_rows=config.max_rows, max_steps=config.loop_steps, step=StepKind(config.draft_step))
