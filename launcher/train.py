"""`slipstream train`: options of each kind of training. Knows the command line; the work is in slipstream.training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launcher import train_options as options
from launcher.train_lora import lora

app = typer.Typer(no_args_is_help=True, help="Train drafters for a target model.")
app.command("lora")(lora)


@app.command("draft-lm")
def draft_lm(
    target: options.Target,
    out: options.Out,
    prompts: options.Prompts,
    run: options.Run = Path("run"),
    text: options.Text = None,
    device: options.Device = "cuda",
    minutes: options.Minutes = 10.0,
    finish: options.Finish = False,
    chat_tokens: options.ChatTokens = 25_165_824,
    chat_batch: options.ChatBatch = 4096,
    length: options.Length = 768,
    train_tokens: options.TrainTokens = 340_000_000,
    layers: Annotated[int, typer.Option(help="Number of the draft's layers.")] = 4,
    draft_vocab: options.DraftVocab = 12288,
    batch: options.Batch = 64,
    learning_rate: options.LearningRate = 3e-3,
    loss: options.Loss = "lk_hybrid",
    temperature: options.Temperature = 1.0,
    compiled: options.Compiled = False,
    seed: options.Seed = 0,
) -> None:
    """Distil a small draft LM: the target writes text, and the draft learns its distribution."""
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
        options.device_of(device),
        options.slice_of(minutes, finish),
    )
    options.say_end(out, acceptance)


@app.command()
def eagle3(
    target: options.Target,
    out: options.Out,
    prompts: options.Prompts,
    head: Annotated[
        Path | None, typer.Option(help="Stored head to continue from; default: the target's last layer.")
    ] = None,
    run: options.Run = Path("run"),
    text: options.Text = None,
    device: options.Device = "cuda",
    minutes: options.Minutes = 10.0,
    finish: options.Finish = False,
    chat_tokens: options.ChatTokens = 25_165_824,
    chat_batch: options.ChatBatch = 4096,
    length: options.Length = 768,
    train_tokens: options.TrainTokens = 120_000_000,
    unroll_steps: Annotated[int, typer.Option(help="Draft tokens after a commit that the head learns to make.")] = 6,
    draft_vocab: options.DraftVocab = 12288,
    stored_vocab: Annotated[int, typer.Option(help="Tokens that the stored head may draft; 0: as --draft-vocab.")] = 0,
    batch: options.Batch = 32,
    learning_rate: options.LearningRate = 2e-3,
    loss: options.Loss = "lk_hybrid",
    temperature: options.Temperature = 1.0,
    shared_head: Annotated[
        bool, typer.Option("--shared-head", help="Store int8 rows and no lm_head, for this project's loader only.")
    ] = False,
    compiled: options.Compiled = False,
    seed: options.Seed = 0,
) -> None:
    """Train an EAGLE-3 head: it drafts from the target's hidden states, then from its own output."""
    from slipstream.training.eagle3_run import train_eagle3
    from slipstream.training.material import Places, text_files
    from slipstream.training.settings import ChatSettings, Eagle3Settings

    acceptance = train_eagle3(
        Places(target=target, run=run, out=out, prompts=prompts, texts=text_files(text or [])),
        ChatSettings(chat_tokens=chat_tokens, length=length, batch=chat_batch, seed=seed),
        Eagle3Settings(
            draft_vocab_size=draft_vocab,
            stored_vocab_size=stored_vocab,
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
        options.device_of(device),
        options.slice_of(minutes, finish),
        head,
    )
    options.say_end(out, acceptance)


@app.command()
def pard(
    target: options.Target,
    out: options.Out,
    prompts: options.Prompts,
    draft: Annotated[
        Path | None, typer.Option(help="Stored draft to continue from; default: layers of the target.")
    ] = None,
    run: options.Run = Path("run"),
    text: options.Text = None,
    device: options.Device = "cuda",
    minutes: options.Minutes = 10.0,
    finish: options.Finish = False,
    chat_tokens: options.ChatTokens = 25_165_824,
    chat_batch: options.ChatBatch = 4096,
    length: options.Length = 768,
    train_tokens: options.TrainTokens = 120_000_000,
    layers: Annotated[int, typer.Option(help="Number of the draft's layers, without --draft.")] = 4,
    draft_vocab: options.DraftVocab = 12288,
    parallel: Annotated[int, typer.Option(help="Draft tokens per pass that the draft learns to make.")] = 8,
    mask_weight: Annotated[float, typer.Option(help="Weight of a mask in the loss; a token's is 1.")] = 0.5,
    mask_token: Annotated[int, typer.Option(help="Token id of the mask; no text may hold it.")] = 16,
    batch: options.Batch = 32,
    learning_rate: options.LearningRate = 2e-3,
    loss: options.Loss = "lk_hybrid",
    temperature: options.Temperature = 1.0,
    compiled: options.Compiled = False,
    seed: options.Seed = 0,
) -> None:
    """Train a draft LM to draft a block in one pass, too: one set of weights for both."""
    from slipstream.training.material import Places, text_files
    from slipstream.training.pard_run import train_pard
    from slipstream.training.settings import ChatSettings, PardSettings

    settings = PardSettings(
        num_layers=layers,
        draft_vocab_size=draft_vocab,
        num_parallel=parallel,
        mask_weight=mask_weight,
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
    options.say_end(
        out, train_pard(places, chat, settings, options.device_of(device), options.slice_of(minutes, finish), draft)
    )


@app.command()
def export(
    drafter: Annotated[Path, typer.Argument(help="Folder of a stored draft or EAGLE-3 head.")],
    out: Annotated[Path, typer.Argument(help="Folder to create.")],
    target: Annotated[Path | None, typer.Option(help="The drafter's target; default: found by name.")] = None,
) -> None:
    """Write a stored drafter as other programs know it."""
    from slipstream.models.eagle3_checkpoint import is_eagle3_folder
    from slipstream.training.export import export_draft
    from slipstream.training.export_head import export_head

    (export_head if is_eagle3_folder(drafter) else export_draft)(drafter, out, target)
    print(out)


if __name__ == "__main__":
    app()
