"""`slipstream train lora`: its options. Knows the command line; the work is in slipstream.training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launcher import train_options as options

_Text = Annotated[
    list[Path],
    typer.Option(help="Text of the kind: a .jsonl of `prompt`s, or plain text to continue; repeatable."),
]
_Modules = Annotated[str, typer.Option(help="Matrices that the adapter changes, separated by commas.")]


def lora(
    target: options.Target,
    draft: Annotated[Path, typer.Option(help="The draft model's folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the finished adapter, in PEFT's format.")],
    text: _Text,
    run: options.Run = Path("run"),
    device: options.Device = "cuda",
    minutes: options.Minutes = 10.0,
    finish: options.Finish = False,
    chat_tokens: options.ChatTokens = 2_097_152,
    chat_batch: options.ChatBatch = 2048,
    length: options.Length = 512,
    train_tokens: options.TrainTokens = 8_000_000,
    rank: Annotated[int, typer.Option(help="Rank of the adapter; a drafter's default limit is 16.")] = 16,
    alpha: Annotated[float, typer.Option(help="Scale of the adapter's addition: alpha / rank.")] = 32.0,
    modules: _Modules = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
    held_out: Annotated[int, typer.Option(help="Prompts kept for measuring and not trained on.")] = 30,
    batch: options.Batch = 32,
    learning_rate: options.LearningRate = 2e-3,
    loss: options.Loss = "lk_hybrid",
    temperature: options.Temperature = 1.0,
    compiled: options.Compiled = False,
    seed: options.Seed = 0,
) -> None:
    """Train a LoRA adapter of a draft model for one kind of text, such as a tenant's."""
    from slipstream.training.lora_run import LoraPlaces, train_lora
    from slipstream.training.material import text_files
    from slipstream.training.settings import ChatSettings, LoraSettings

    settings = LoraSettings(
        rank=rank,
        alpha=alpha,
        modules=tuple(modules.split(",")),
        num_held_out=held_out,
        loss=loss,
        temperature=temperature,
        train_tokens=train_tokens,
        batch=batch,
        learning_rate=learning_rate,
        compiled=compiled,
        seed=seed,
    )
    places = LoraPlaces(target=target, draft=draft, run=run, out=out, texts=text_files(text))
    chat = ChatSettings(chat_tokens=chat_tokens, length=length, batch=chat_batch, seed=seed)
    options.say_end(
        out, train_lora(places, chat, settings, options.device_of(device), options.slice_of(minutes, finish))
    )
