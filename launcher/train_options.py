"""Options that all kinds of training take, and how one tells where it stands. Knows the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from slipstream.training.material import Slice
    from slipstream.training.slices import Progress

Target = Annotated[Path, typer.Option(help="The target's folder, tokenizer included.")]
Out = Annotated[Path, typer.Option(help="Folder of the finished drafter.")]
Prompts = Annotated[Path, typer.Option(help="Evaluation prompts, a JSON object with `prompt` on each line.")]
Run = Annotated[Path, typer.Option(help="Folder of text and training state.")]
Text = Annotated[list[Path] | None, typer.Option(help="Text to ask about, besides Python's documentation; repeatable.")]
Device = Annotated[str, typer.Option(help="cuda or cpu.")]
Minutes = Annotated[float, typer.Option(help="Minutes to run; the same command again continues.")]
ChatTokens = Annotated[int, typer.Option(help="Tokens of text that the target writes.")]
ChatBatch = Annotated[int, typer.Option(help="Rows that the target writes at once.")]
Length = Annotated[int, typer.Option(help="Tokens per row.")]
TrainTokens = Annotated[int, typer.Option(help="Tokens to train on, in total.")]
DraftVocab = Annotated[int, typer.Option(help="Tokens that may be drafted.")]
Batch = Annotated[int, typer.Option(help="Rows per training step.")]
LearningRate = Annotated[float, typer.Option(help="Highest learning rate.")]
Loss = Annotated[str, typer.Option(help="Loss: kl or lk_hybrid.")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature to train for; 0.5 suits greedy.")]
Compiled = Annotated[bool, typer.Option("--compiled", help="Compile the layers; pays on a GPU.")]
Seed = Annotated[int, typer.Option(help="Seed of text, order and initial weights.")]
Finish = Annotated[bool, typer.Option("--finish", help="End within --minutes, with fewer tokens if need be.")]


def slice_of(minutes: float, finish: bool = False) -> Slice:
    """What one run of the command does."""
    from slipstream.training.material import Slice

    if not minutes > 0:
        raise ValueError(f"minutes is {minutes}; it must be > 0")
    return Slice(seconds=minutes * 60, measure_every=45.0, say=_say, progress=_progress, finish=finish)


def device_of(name: str) -> torch.device:
    """Raises ValueError if it is not to be had."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an AssertionError: torch was built without CUDA
        raise ValueError(f"device is {name!r}, which is not to be had here; give --device cpu") from error
    return device


def say_end(out: Path, result: object | None) -> None:
    """`result`: what the finished drafter accepts; None if there is more to do."""
    _say(f"stored in {out}: {result}" if result else "time is up; the same command goes on from here")


def _say(text: str) -> None:
    print(text, flush=True)


def _progress(now: Progress) -> None:
    line = f"step {now.step}/{now.num_steps}  loss {now.loss:.4f}  accepted {now.accepted:.3f}"
    line += f"  {now.tokens_per_second / 1000:.0f}k tok/s  {now.seconds_left:.0f} s left"
    _say(line if now.held_out is None else f"{line}  held out: {now.held_out}")
