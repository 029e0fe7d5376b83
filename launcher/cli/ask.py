"""Commands that ask running services: generate, chat, status, top, bench. Knows options; the work is beside it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launcher import run_file, status
from launcher.bench import BenchOptions, run_bench
from launcher.chat import ChatOptions, run_chat
from launcher.cli import options, top
from launcher.cli.options import DEFAULT_GATEWAY
from launcher.client import Client, chat_prompt, connect
from launcher.generate import run_generate
from launcher.grammar_options import GrammarOptions
from launcher.policy_status import as_json_text, as_table, policies_in
from launcher.prompt_file import DEMO_PROMPTS, load_prompts
from launcher.request_options import RequestOptions, biases, make_request, words
from launcher.run_file import Listed
from launcher.scrape import metrics_text
from slipstream.config import runtime_dir
from slipstream.errors import Unavailable
from slipstream.wire.tls import client_tls
from slipstream.wire.v1 import generation_pb2 as pb

app = typer.Typer()
app.add_typer(top.app)


@app.command("generate")
def generate_command(
    prompt: Annotated[str, typer.Argument(help="The prompt; `-` reads it from standard input.")],
    target: options.Target = DEFAULT_GATEWAY,
    api_key: options.ApiKey = "",
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    model: options.Model = "",
    chat: Annotated[bool, typer.Option("--chat", help="Apply the chat template.")] = False,
    system: options.System = "",
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    max_tokens: options.MaxTokens = 128,
    seed: options.Seed = None,
    stop: options.Stop = None,
    min_tokens: options.MinTokens = 0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    logit_bias: options.LogitBias = None,
    allowed_token_id: options.AllowedTokenId = None,
    bad_word: options.BadWord = None,
    n: options.NumSamples = 1,
    echo: options.Echo = False,
    logprobs: options.Logprobs = None,
    prompt_logprobs: options.PromptLogprobs = False,
    json_schema: options.JsonSchema = None,
    regex: options.Regex = None,
    grammar: options.Grammar = None,
    choice: options.Choice = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = 300.0,
) -> None:
    """Ask a gateway; accepted draft tokens are coloured."""
    wanted = RequestOptions(
        model=model,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        max_tokens=max_tokens,
        seed=seed,
        stop=tuple(stop or ()),
        min_tokens=min_tokens,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=biases(logit_bias or ()),
        allowed_token_ids=tuple(allowed_token_id or ()),
        bad_words=words(bad_word or ()),
        n=n,
        echo=echo,
        num_top_logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        grammar=GrammarOptions(json_schema=json_schema, regex=regex, ebnf=grammar, choices=choice or ()).read(),
    )
    request = make_request(_read_prompt(prompt, system, chat=chat), wanted)
    _generate(connect(target, api_key, client_tls(tls_ca, tls_cert, tls_key)), request, timeout, as_json=as_json)


def _generate(
    connection: AbstractContextManager[Client], request: pb.GenerateRequest, timeout: float, *, as_json: bool
) -> None:
    with connection as client:
        run_generate(Console(), client, request, timeout, as_json=as_json)


def _read_prompt(prompt: str, system: str, *, chat: bool) -> pb.Prompt:
    text = sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt
    return chat_prompt(text, system) if chat else pb.Prompt(text=text)


@app.command("chat")
def chat_command(
    target: options.Target = DEFAULT_GATEWAY,
    api_key: options.ApiKey = "",
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    model: options.Model = "",
    system: options.System = "",
    temperature: options.Temperature = 0.7,
    top_p: options.TopP = 1.0,
    max_tokens: options.MaxTokens = 512,
    seed: options.Seed = None,
    timeout: options.Timeout = 300.0,
) -> None:
    """Talk with a model; accepted draft tokens are coloured."""
    wanted = RequestOptions(model=model, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed)
    with connect(target, api_key, client_tls(tls_ca, tls_cert, tls_key)) as client:
        run_chat(Console(), client, ChatOptions(request=wanted, system=system, timeout=timeout))


@app.command("status")
def status_command(
    target: options.Target = DEFAULT_GATEWAY,
    service: Annotated[list[str] | None, typer.Option(help="host:port of another service to ask; repeatable.")] = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    policy: Annotated[bool, typer.Option("--policy", help="How the gateway drafts for each tenant, and why.")] = False,
    metrics: Annotated[
        str, typer.Option(help="host:port of the gateway's metrics, if `slipstream up` did not start it here.")
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """Say how each service is and what it holds, or how tenants are drafted. Exit code 1 unless all serve.

    Verifiers and drafters behind a gateway are known if `slipstream up` started them on this machine.
    """
    if policy:
        show_policies(metrics or metrics_address(target), as_json=as_json)
        return
    services = run_file.read(runtime_dir(), target) or [Listed(name="gateway", address=target)]
    services += [Listed(name=address, address=address) for address in service or ()]
    statuses = status.ask_all(services, client_tls(tls_ca, tls_cert, tls_key))
    if as_json:
        print(status.as_json_text(statuses))
    else:
        Console().print(status.as_table(statuses))
    raise typer.Exit(0 if all(one.is_serving for one in statuses) else 1)


def metrics_address(gateway: str) -> str:
    """Where the gateway's metrics are, as far as is known on this machine; empty if it is not."""
    listed = run_file.read(runtime_dir(), gateway)
    return next((service.metrics for service in listed if service.address == gateway), "")


def show_policies(address: str, *, as_json: bool) -> None:
    """Raises Unavailable if the gateway's metrics cannot be read."""
    text = metrics_text(address, status.ASK_SECONDS) if address else None
    if text is None:
        raise Unavailable(f"no metrics of a gateway at {address or 'any known address'}; give --metrics host:port")
    policies = policies_in(text)
    if as_json:
        print(as_json_text(policies))
    else:
        Console().print(as_table(policies))


@app.command("bench")
def bench_command(
    prompts: Annotated[
        Path, typer.Argument(help="A .jsonl of `prompt`, a .yaml of `text`, or a text file of one prompt a line.")
    ] = DEMO_PROMPTS,
    target: options.Target = DEFAULT_GATEWAY,
    api_key: options.ApiKey = "",
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    model: options.Model = "",
    streams: Annotated[int, typer.Option(help="Concurrent requests.")] = 1,
    requests: Annotated[int, typer.Option(help="Requests per stream.")] = 8,
    chat: Annotated[bool, typer.Option(help="Apply the chat template.")] = True,
    temperature: options.Temperature = 0.0,
    max_tokens: options.MaxTokens = 128,
    seed: options.Seed = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Generate max-tokens tokens, whatever ends the answer.")
    ] = False,
    as_json: options.AsJson = False,
    timeout: options.Timeout = 300.0,
) -> None:
    """Measure a gateway: tokens/s, times to first and per token, acceptance. Exit code 1 if a request failed."""
    wanted = RequestOptions(
        model=model, temperature=temperature, max_tokens=max_tokens, seed=seed, ignore_eos=ignore_eos
    )
    report = run_bench(
        load_prompts(prompts),
        BenchOptions(
            target=target,
            streams=streams,
            requests=requests,
            chat=chat,
            api_key=api_key,
            tls=client_tls(tls_ca, tls_cert, tls_key),
            timeout=timeout,
            request=wanted,
        ),
    )
    if as_json:
        print(report.as_json_text())
    else:
        Console().print(report.as_table())
    raise typer.Exit(1 if report.failures else 0)
