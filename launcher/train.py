"""`slipstream train`: options of each kind of training. Knows the command line; the work is in slipstream.training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.training.slices import Progress

app = typer.Typer(no_args_is_help=True, help="Make drafters for a target of yours.")


@app.command("draft-lm")
def draft_lm(
    target: Annotated[Path, typer.Option(help="The target's folder, tokenizer included.")],
    out: Annotated[Path, typer.Option(help="Folder of the finished draft.")],
    prompts: Annotated[Path, typer.Option(help="Evaluation prompts, a JSON object with `prompt` on each line.")],
    run: Annotated[Path, typer.Option(help="Folder of text and state between slices.")] = Path("run"),
    text: Annotated[list[Path] | None, typer.Option(help="Text to ask about, beside Python's own; repeatable.")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    minutes: Annotated[float, typer.Option(help="Of this slice; the same command again goes on.")] = 10.0,
    chat_tokens: Annotated[int, typer.Option(help="Text that the target writes.")] = 25_165_824,
    chat_batch: Annotated[int, typer.Option(help="Rows written at once.")] = 4096,
    length: Annotated[int, typer.Option(help="Tokens of a row.")] = 768,
    train_tokens: Annotated[int, typer.Option(help="Tokens fed in all.")] = 340_000_000,
    layers: Annotated[int, typer.Option(help="Of the draft.")] = 4,
    draft_vocab: Annotated[int, typer.Option(help="Tokens that may be drafted.")] = 12288,
    batch: Annotated[int, typer.Option(help="Rows of a training step.")] = 64,
    learning_rate: Annotated[float, typer.Option()] = 3e-3,
    loss: Annotated[str, typer.Option(help="kl or lk_hybrid.")] = "lk_hybrid",
    temperature: Annotated[float, typer.Option(help="That the draft serves best; 0.5 stands for greedy.")] = 1.0,
    compiled: Annotated[bool, typer.Option("--compiled", help="Compile the layers; pays on a GPU.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Distil a small draft LM: the target writes text, the draft learns its distribution."""
    import torch

    from slipstream.training.draft_lm_run import train_draft_lm
    from slipstream.training.material import Places, Slice, text_files
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
        Slice(seconds=minutes * 60, measure_every=60.0, say=_say, progress=_progress),
    )
    _say(f"stored in {out}: {acceptance}" if acceptance else "time is up; the same command goes on from here")


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


def _say(text: str) -> None:
    print(text, flush=True)


def _progress(now: Progress) -> None:
    line = f"step {now.step}/{now.num_steps}  loss {now.loss:.4f}  accepted {now.accepted:.3f}"
    line += f"  {now.tokens_per_second / 1000:.0f}k tok/s  {now.seconds_left:.0f} s left"
    _say(line if now.held_out is None else f"{line}  held out: {now.held_out}")


if __name__ == "__main__":
    app()
