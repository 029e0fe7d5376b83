"""Commands that start services or check what would be started: up, demo, config check. Knows their options."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gateway.config import DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN
from gateway.policy.tenants import DRAFT_MODEL, PARD, load_tenants
from launcher.cli.options import AsJson, fetch_default_model, stop_on_sigterm
from launcher.demo import run_demo
from launcher.overrides import Overrides
from launcher.stack import single_machine
from launcher.topology import Topology
from launcher.topology_file import DEFAULT_FILE, describe, load_topology
from launcher.up import run_up
from slipstream.config import DTYPES, runtime_dir

app = typer.Typer()
configs = typer.Typer(no_args_is_help=True, help="Inspect slipstream.yaml.")
app.add_typer(configs, name="config")


@app.command()
def up(
    config: Annotated[
        Path | None, typer.Option(help="Topology file; ./slipstream.yaml if it is there and no model is given.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Target checkpoint; the default model if not given.")] = None,
    draft_model: Annotated[Path | None, typer.Option(help="Draft checkpoint; without it no drafter runs.")] = None,
    tenants: Annotated[Path | None, typer.Option(help="tenants.yaml; without it everyone may call.")] = None,
    dtype: Annotated[str | None, typer.Option(help=f"One of {', '.join(DTYPES)}; bfloat16 if not given.")] = None,
    listen: Annotated[
        str | None,
        typer.Option(help=f"The gateway's address; port 0 is any free one. Without a file {DEFAULT_LISTEN}."),
    ] = None,
    http_listen: Annotated[
        str | None,
        typer.Option(help=f"The gateway's OpenAI-compatible API; empty: none. Without a file {DEFAULT_HTTP_LISTEN}."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="The verifier's CPU threads; 0: all that are free.")] = None,
    kv_memory: Annotated[
        str | None, typer.Option(help="Size of the verifier's KV cache, such as 512MiB or 4GiB.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="The verifier's context length, tokens; 0: the model's.")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="Most sequences at one time, in verifier and drafter.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show running requests and their text on a web page; its address has a key.")
    ] = False,
    otlp_endpoint: Annotated[
        str | None, typer.Option(help="Collector of all services' traces, such as http://127.0.0.1:4318.")
    ] = None,
    placement: Annotated[
        str | None, typer.Option(help="one_process: each verifier shares a process, and a GPU, with its drafter.")
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show the services' logs.")] = False,
) -> None:
    """Start verifiers, drafters and their gateway on this machine, and again when they die; Ctrl-C stops them.

    What is given here goes before what the file says.
    """
    if tenants is not None and tenants.exists():
        load_tenants(tenants)  # models take longer to load than a mistake there to tell
    stop_on_sigterm()
    watch_key = secrets.token_urlsafe(24) if watch else ""
    overrides = Overrides(
        dtype=dtype,
        listen=listen,
        http=http_listen,
        tenants=tenants,
        threads=threads,
        kv_memory=kv_memory,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        otlp_endpoint=otlp_endpoint,
        placement=placement,
        watch_key_sha256=sha256(watch_key.encode()).hexdigest() if watch else None,
    )
    wanted = with_default_model(overrides.apply(topology(config, model, draft_model)))
    run_up(wanted, runtime_dir(), verbose=verbose, watch_key=watch_key)


@app.command()
def demo(
    max_tokens: Annotated[int, typer.Option(help="Most tokens of each answer.", min=1)] = 96,
    proposer: Annotated[str, typer.Option(help="How the shipped draft drafts: draft_model, or pard.")] = DRAFT_MODEL,
) -> None:
    """Ask real prompts with drafting and without, and show what it gave."""
    if proposer not in (DRAFT_MODEL, PARD):
        raise ValueError(f"--proposer is {proposer!r}; the shipped draft drafts as {DRAFT_MODEL} or {PARD}")
    stop_on_sigterm()
    run_demo(Console(), fetch_default_model(), max_tokens, proposer)


@configs.command()
def check(
    file: Annotated[Path, typer.Argument(help="The topology file.")] = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Say everything that is wrong with a topology file; exit code 2 if anything is.

    With --json it prints the topology with all defaults filled in.
    """
    found = load_topology(file)
    if as_json:
        print(json.dumps(describe(found)))
    else:
        counts = [sum(one.replicas for one in services) for services in (found.verifiers, found.drafters)]
        print(f"{file}: good; {counts[0]} verifier(s), {counts[1]} drafter(s), a gateway at {found.gateway.listen}")


def topology(file: Path | None, model: Path | None, draft_model: Path | None) -> Topology:
    """From the file that is given, else from the models that are, else from ./slipstream.yaml if it is there."""
    if file is not None and (model or draft_model):
        raise ValueError("give --config, or --model and --draft-model, not both")
    if file is None and not (model or draft_model) and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    if file is None:
        return single_machine(model, draft_model, listen=DEFAULT_LISTEN, http=DEFAULT_HTTP_LISTEN)
    print(f"from {file}", flush=True)
    return load_topology(file)


def with_default_model(wanted: Topology) -> Topology:
    """Verifiers that name no model get the default one, fetched if need be."""
    if all(verifier.model for verifier in wanted.verifiers):
        return wanted
    default = fetch_default_model()
    verifiers = tuple(replace(verifier, model=verifier.model or default) for verifier in wanted.verifiers)
    return replace(wanted, verifiers=verifiers)
