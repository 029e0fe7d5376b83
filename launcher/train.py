"""`slipstream train`: options of each kind of training. Knows the command line; the work is in slipstream.training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.training.acceptance import Acceptance
    from slipstream.training.material import Slice
    from slipstream.training.slices import Progress

app = typer.Typer(no_args_is_help=True, help="Make drafters for a target of yours.")


Target = Annotated[Path, typer.Option(help="The target's folder, tokenizer included.")]
Out = Annotated[Path, typer.Option(help="Folder of the finished drafter.")]
Prompts = Annotated[Path, typer.Option(help="Evaluation prompts, a JSON object with `prompt` on each line.")]
Run = Annotated[Path, typer.Option(help="Folder of text and state between slices.")]
Text = Annotated[list[Path] | None, typer.Option(help="Text to ask about, beside Python's own; repeatable.")]
Device = Annotated[str, typer.Option(help="cuda or cpu.")]
Minutes = Annotated[float, typer.Option(help="Of this slice; the same command again goes on.")]
ChatTokens = Annotated[int, typer.Option(help="Text that the target writes.")]
ChatBatch = Annotated[int, typer.Option(help="Rows written at once.")]
Length = Annotated[int, typer.Option(help="Tokens of a row.")]
TrainTokens = Annotated[int, typer.Option(help="Tokens fed in all.")]
DraftVocab = Annotated[int, typer.Option(help="Tokens that may be drafted.")]
Batch = Annotated[int, typer.Option(help="Rows of a training step.")]
LearningRate = Annotated[float, typer.Option()]
Loss = Annotated[str, typer.Option(help="kl or lk_hybrid.")]
Temperature = Annotated[float, typer.Option(help="That the drafter serves best; 0.5 stands for greedy.")]
Compiled = Annotated[bool, typer.Option("--compiled", help="Compile the layers; pays on a GPU.")]
Seed = Annotated[int, typer.Option()]


@app.command("draft-lm")
def draft_lm(
    target: Target,
    out: Out,
    prompts: Prompts,
    run: Run = Path("run"),
    text: Text = None,
    device: Device = "cuda",
    minutes: Minutes = 10.0,
    chat_tokens: ChatTokens = 25_165_824,
    chat_batch: ChatBatch = 4096,
    length: Length = 768,
    train_tokens: TrainTokens = 340_000_000,
    layers: Annotated[int, typer.Option(help="Of the draft.")] = 4,
    draft_vocab: DraftVocab = 12288,
    batch: Batch = 64,
    learning_rate: LearningRate = 3e-3,
    loss: Loss = "lk_hybrid",
    temperature: Temperature = 1.0,
    compiled: Compiled = False,
    seed: Seed = 0,
) -> None:
    """Distil a small draft LM: the target writes text, the draft learns its distribution."""
    import torch

    from slipstream.training.draft_lm_run import train_draft_lm
    from slipstream.training.material import Places, text_files
    from slipstream.training.settings import ChatSettings, DraftSettings

    acceptance = train_draft_lm(
        Places(target=target, run=run, out=out, prompts=prompts, texts=text_files(text or [])),
        ChatSettings(chat_tokens=chat_tokens, length=length, batch=chat_batch, seed=seed),
        DraftSettings(
            num_layers=layers,
            draft_vocab_size=draft_vocab,
            loss=loss,
            temperature=temperature,
            train_tokens=train_tokens,
            batch=batch,
            learning_rate=learning_rate,
            compiled=compiled,
            seed=seed,
        ),
        torch.device(device),
        _slice(minutes),
    )
    _say_end(out, acceptance)


@app.command()
def eagle3(
    target: Target,
    out: Out,
    prompts: Prompts,
    run: Run = Path("run"),
    text: Text = None,
    device: Device = "cuda",
    minutes: Minutes = 10.0,
    chat_tokens: ChatTokens = 25_165_824,
    chat_batch: ChatBatch = 4096,
    length: Length = 768,
    train_tokens: TrainTokens = 120_000_000,
    unroll_steps: Annotated[int, typer.Option(help="Draft tokens after a commit that it learns to make.")] = 6,
    draft_vocab: DraftVocab = 12288,
    batch: Batch = 32,
    learning_rate: LearningRate = 2e-3,
    loss: Loss = "lk_hybrid",
    temperature: Temperature = 1.0,
    shared_head: Annotated[
        bool, typer.Option("--shared-head", help="Store no lm_head; only this project's loader does without.")
    ] = False,
    compiled: Compiled = False,
    seed: Seed = 0,
) -> None:
    """Train an EAGLE-3 head: it drafts from the target's hidden states, then from its own output."""
    import torch

    from slipstream.training.eagle3_run import train_eagle3
    from slipstream.training.material import Places, text_files
    from slipstream.training.settings import ChatSettings, Eagle3Settings

    acceptance = train_eagle3(
        Places(target=target, run=run, out=out, prompts=prompts, texts=text_files(text or [])),
        ChatSettings(chat_tokens=chat_tokens, length=length, batch=chat_batch, seed=seed),
        Eagle3Settings(
            draft_vocab_size=draft_vocab,
            unroll_steps=unroll_steps,
            loss=loss,
            temperature=temperature,
            train_tokens=train_tokens,
            batch=batch,
            learning_rate=learning_rate,
            shared_head=shared_head,
            compiled=compiled,
            seed=seed,
        ),
        torch.device(device),
        _slice(minutes),
    )
    _say_end(out, acceptance)


@app.command()
def pard(
    target: Target,
    out: Out,
    prompts: Prompts,
    draft: Annotated[
        Path | None, typer.Option(help="Stored draft to go on from; else some of target's layers.")
    ] = None,
    run: Run = Path("run"),
    text: Text = None,
    device: Device = "cuda",
    minutes: Minutes = 10.0,
    chat_tokens: ChatTokens = 25_165_824,
    chat_batch: ChatBatch = 4096,
    length: Length = 768,
    train_tokens: TrainTokens = 120_000_000,
    layers: Annotated[int, typer.Option(help="Of the draft, without --draft.")] = 4,
    draft_vocab: DraftVocab = 12288,
    parallel: Annotated[int, typer.Option(help="Draft tokens of one pass that it learns to make.")] = 8,
    mask_token: Annotated[int, typer.Option(help="Id that stands in their place; no text may hold it.")] = 16,
    batch: Batch = 32,
    learning_rate: LearningRate = 2e-3,
    loss: Loss = "lk_hybrid",
    temperature: Temperature = 1.0,
    compiled: Compiled = False,
    seed: Seed = 0,
) -> None:
    """Train a draft LM to draft a block in one pass, too: one set of weights for both."""
    import torch

    from slipstream.training.material import Places, text_files
    from slipstream.training.pard_run import train_pard
    from slipstream.training.settings import ChatSettings, PardSettings

    settings = PardSettings(
        num_layers=layers,
        draft_vocab_size=draft_vocab,
        num_parallel=parallel,
        mask_token=mask_token,
        loss=loss,
        temperature=temperature,
        train_tokens=train_tokens,
        batch=batch,
        learning_rate=learning_rate,
        compiled=compiled,
        seed=seed,
    )
    places = Places(target=target, run=run, out=out, prompts=prompts, texts=text_files(text or []))
    chat = ChatSettings(chat_tokens=chat_tokens, length=length, batch=chat_batch, seed=seed)
    _say_end(out, train_pard(places, chat, settings, torch.device(device), _slice(minutes), draft))


@app.command()
def export(
    draft: Annotated[Path, typer.Argument(help="Folder of a stored draft.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    target: Annotated[Path | None, typer.Option(help="Its target; found by name if not given.")] = None,
) -> None:
    """Write a stored draft as a Hugging Face folder, for other programs."""
    from slipstream.training.export import export_draft

    export_draft(draft, out, target)
    print(out)


def _slice(minutes: float) -> Slice:
    from slipstream.training.material import Slice

    return Slice(seconds=minutes * 60, measure_every=60.0, say=_say, progress=_progress)


def _say_end(out: Path, acceptance: Acceptance | None) -> None:
    _say(f"stored in {out}: {acceptance}" if acceptance else "time is up; the same command goes on from here")


def _say(text: str) -> None:
    print(text, flush=True)


def _progress(now: Progress) -> None:
    line = f"step {now.step}/{now.num_steps}  loss {now.loss:.4f}  accepted {now.accepted:.3f}"
    line += f"  {now.tokens_per_second / 1000:.0f}k tok/s  {now.seconds_left:.0f} s left"
    _say(line if now.held_out is None else f"{line}  held out: {now.held_out}")


if __name__ == "__main__":
    app()
