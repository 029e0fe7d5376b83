"""`slipstream eval`: how well proposers draft on a file of prompts. Knows options; the work is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launcher.bench import BenchOptions, run_bench
from launcher.cli import options
from launcher.evaluation.asked import Asked, Candidate
from launcher.evaluation.plot import check_plot, save_plot
from launcher.evaluation.report import Evaluation, as_json_text, as_table
from launcher.model_fetch import Report
from launcher.prompt_file import Prompt, load_prompts
from launcher.request_options import RequestOptions
from launcher.terminal import progress
from slipstream.config import EngineConfig
from slipstream.exchange import Commit
from slipstream.request import VerificationMode
from slipstream.wire.tls import client_tls

app = typer.Typer()

_PROPOSERS = "NAME or NAME=FOLDER: none, ngram, draft_model=, pard= or eagle3=; may be given again."
_GATEWAY = "Ask this gateway, too: one stream, drafted for as its tenant is."

_NumDraftTokens = Annotated[
    int,
    typer.Option("--num-draft-tokens", "-k", help="Draft tokens per pass; with --gateway the tenant's policy decides."),
]
_Coupled = Annotated[
    bool, typer.Option("--coupled", help="Verify in coupled mode; with --gateway the tenant's policy decides.")
]


@app.command("eval")
def eval_command(
    prompts: Annotated[
        Path, typer.Argument(help="A .jsonl of `prompt`, a .yaml of `text`, or a text file of one prompt a line.")
    ],
    proposer: Annotated[list[str] | None, typer.Option(help=_PROPOSERS)] = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target; the default model if not given.")] = None,
    gateway: Annotated[str, typer.Option(help=_GATEWAY)] = "",
    api_key: options.ApiKey = "",
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    num_draft_tokens: _NumDraftTokens = 5,
    num_prompts: Annotated[int, typer.Option(help="Number of prompts to use; 0: all.", min=0)] = 0,
    max_tokens: options.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    coupled: _Coupled = False,
    chat: Annotated[bool, typer.Option(help="Apply the chat template.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of every prompt.", min=0, max=(1 << 64) - 1)] = 0,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="bfloat16, float32 or float16.")] = "bfloat16",
    num_threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="PNG file for acceptance by position.")] = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = 300.0,
) -> None:
    """Measure acceptance by position, acceptance length and agreement with the target.

    In this process, where every draft comes in time, or with --gateway through services.
    """
    candidates = [Candidate.parse(text) for text in proposer or ()]
    if not candidates and not gateway:
        raise ValueError("nothing to measure; give --proposer, --gateway or both")
    if plot is not None:
        check_plot(plot)
    texts = load_prompts(prompts)[: num_prompts or None]
    evaluations: list[Evaluation] = []
    if candidates:
        asked = Asked(
            num_draft_tokens=num_draft_tokens,
            max_tokens=max_tokens,
            temperature=temperature,
            mode=VerificationMode.COUPLED if coupled else VerificationMode.RATIO,
            seed=seed,
            chat=chat,
        )
        model = target or options.fetch_default_model()
        engine = EngineConfig(model=model, device=device, dtype=dtype, num_threads=num_threads)
        evaluations += _offline(engine, candidates, texts, asked)
    if gateway:
        wanted = RequestOptions(max_tokens=max_tokens, temperature=temperature, seed=seed)
        tls = client_tls(tls_ca, tls_cert, tls_key)
        asking = BenchOptions(
            target=gateway, requests=len(texts), chat=chat, api_key=api_key, tls=tls, timeout=timeout, request=wanted
        )
        evaluations.append(_online(texts, asking))
    _show(evaluations, plot, as_json=as_json)


def _offline(
    engine: EngineConfig, candidates: Sequence[Candidate], prompts: Sequence[Prompt], asked: Asked
) -> Iterator[Evaluation]:
    from launcher.evaluation.offline import make_pair  # torch takes a second to load

    for candidate in candidates:
        with progress(Console(stderr=True), candidate.label) as report:
            passes = make_pair(engine, candidate).answer([prompt.text for prompt in prompts], asked)
            counted = _counted(passes, len(prompts), report)
            evaluation = Evaluation.of_passes(candidate.label, counted)
        yield evaluation


def _counted(answers: Iterator[list[Commit]], total: int, report: Report) -> Iterator[list[Commit]]:
    for number, commits in enumerate(answers, 1):
        report(f"{number} of {total} prompts", number / total)
        yield commits


def _show(evaluations: Sequence[Evaluation], plot: Path | None, *, as_json: bool) -> None:
    if plot is not None:
        save_plot(evaluations, plot)
    if as_json:
        print(as_json_text(evaluations))
    else:
        Console().print(as_table(evaluations))


def _online(prompts: Sequence[Prompt], asking: BenchOptions) -> Evaluation:
    """Raises RuntimeError if a request fails: what is left would be other prompts."""
    measured = run_bench(prompts, asking)
    for text, count in measured.failures.most_common(1):
        raise RuntimeError(f"{count} requests to {asking.target} failed: {text}")
    return Evaluation(f"through {asking.target}", measured.figures)
