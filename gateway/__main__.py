"""`python -m gateway`: reads options, starts the gateway, serves it. Knows the command line."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from gateway.config import DEFAULT_LISTEN, GatewayConfig
from gateway.gateway import Gateway
from gateway.grpc_services import SERVICE_NAMES, GrpcServices
from gateway.http_app import make_app
from gateway.http_server import http_served
from gateway.openai.api import OpenAiApi
from gateway.peers.tritonserver import tritonserver_config
from gateway.policy.audit import log_policies
from gateway.policy.tenants import Tenants, default_tenants, load_tenants
from gateway.policy.watch import PolicyWatch
from gateway.watch.page import WatchPage
from slipstream import command_line, logs
from slipstream.metrics.endpoint import shown
from slipstream.metrics.instruments import Instrument
from slipstream.telemetry.otlp import exporting
from slipstream.telemetry.spans import Tracer
from slipstream.wire import server
from slipstream.wire.part import Part
from slipstream.wire.tls import client_tls, server_tls

_Verifier = Annotated[
    list[str],
    typer.Option(help="host:port of a verifier, or dns:///name:port for all behind a name; repeat for several."),
]
_Drafter = Annotated[list[str] | None, typer.Option(help="The same for drafters; repeatable.")]
_TritonServer = Annotated[
    str, typer.Option(help="host:port of an NVIDIA Triton Inference Server whose model may draft (docs/operations.md).")
]
_TenantsFile = Annotated[
    Path | None, typer.Option(help="tenants.yaml (see gateway/tenants.example.yaml); without it everyone may call.")
]
_RecoverySeconds = Annotated[float, typer.Option(help="How long a running request waits for a verifier to come back.")]
_HttpListen = Annotated[
    str,
    typer.Option(help="host:port of the OpenAI-compatible API (docs/api.md); port 0 takes any; empty: nowhere."),
]
_WatchKey = Annotated[
    str,
    typer.Option(
        envvar="SLIPSTREAM_WATCH_KEY_SHA256",
        help="SHA-256 of the key with which an operator may watch all requests and their text (docs/watching.md).",
    ),
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    verifier: _Verifier,
    drafter: _Drafter = None,
    listen: command_line.Listen = DEFAULT_LISTEN,
    tls_cert: command_line.TlsCert = None,
    tls_key: command_line.TlsKey = None,
    tls_client_ca: command_line.TlsClientCa = None,
    peer_ca: Annotated[Path | None, typer.Option(help="PEM CA of verifiers and drafters; without it no TLS.")] = None,
    peer_cert: Annotated[Path | None, typer.Option(help="PEM certificate shown to verifiers and drafters.")] = None,
    peer_key: Annotated[Path | None, typer.Option(help="PEM key of that certificate.")] = None,
    tritonserver: _TritonServer = "",
    tritonserver_model: Annotated[str, typer.Option(help="Name of the model on that server.")] = "",
    tritonserver_ca: Annotated[
        Path | None, typer.Option(help="PEM CA of that server's certificate; without it no TLS.")
    ] = None,
    tenants: _TenantsFile = None,
    recovery_seconds: _RecoverySeconds = 3.0,
    max_running: Annotated[int, typer.Option(help="Most running requests, of all tenants.")] = 256,
    max_queued: Annotated[int, typer.Option(help="Most waiting requests, of all tenants.")] = 256,
    max_queued_per_tenant: Annotated[int, typer.Option(help="Most waiting requests of one tenant.")] = 128,
    max_queue_seconds: Annotated[float, typer.Option(help="Longest wait of a request, seconds.")] = 30.0,
    http_listen: _HttpListen = "",
    watch_key_sha256: _WatchKey = "",
    metrics_listen: command_line.MetricsListen = "",
    otlp_endpoint: command_line.OtlpEndpoint = "",
    log_level: command_line.LogLevel = "info",
    log_json: command_line.LogJson = False,
) -> None:
    """Serves slipstream.v1.Generation and KServe v2 for one or more verifiers, drafting by itself, too."""
    with command_line.mistakes_in_one_line():
        logs.configure(log_level, as_json=log_json)
        config = GatewayConfig(
            listen=listen,
            tls=server_tls(tls_cert, tls_key, tls_client_ca),
            verifiers=tuple(verifier),
            drafters=tuple(drafter or ()),
            peer_tls=client_tls(peer_ca, peer_cert, peer_key),
            tritonserver=tritonserver_config(tritonserver, tritonserver_model, client_tls(tritonserver_ca, None, None)),
            tenants=tenants,
            recovery_seconds=recovery_seconds,
            max_running=max_running,
            max_queued=max_queued,
            max_queued_per_tenant=max_queued_per_tenant,
            max_queue_seconds=max_queue_seconds,
            http_listen=http_listen,
            watch_key_sha256=watch_key_sha256,
            metrics_listen=metrics_listen,
            otlp_endpoint=otlp_endpoint,
        )
        callers = _tenants(config)
    server.run(_serve(config, callers))


async def _serve(config: GatewayConfig, tenants: Tenants) -> None:
    with exporting(config.otlp_endpoint, "gateway") as tracer:
        await _serve_traced(config, tenants, tracer)


async def _serve_traced(config: GatewayConfig, tenants: Tenants, tracer: Tracer) -> None:
    readiness = server.Readiness(ready=False)
    gateway = Gateway(config, tenants, readiness.set, tracer)
    services, links = GrpcServices(gateway), asyncio.create_task(gateway.run())
    try:
        async with (
            _followed(config.tenants, gateway) as reloads,
            shown("gateway", config.metrics_listen, [*gateway.instruments(), *reloads]),
            http_served("gateway", config.http_listen, _http_app(config, gateway), config.tls) as http,
        ):
            log_policies(_source(config), tenants)
            await server.serve(
                "gateway",
                Part(service_names=SERVICE_NAMES, register=services.register),
                server.ServerConfig(listen=config.listen, tls=config.tls),
                failure=links,
                readiness=readiness,
                drain_beside=(http.drain, services.drain),
            )
    finally:
        links.cancel()
        with suppress(asyncio.CancelledError):
            await links


def _http_app(config: GatewayConfig, gateway: Gateway) -> web.Application:
    page = WatchPage(gateway.feed, config.watch_key_sha256)
    http_app = make_app(gateway, [*OpenAiApi(gateway).routes(), *page.routes()])
    http_app.on_shutdown.append(page.end)
    return http_app


@asynccontextmanager
async def _followed(file: Path | None, gateway: Gateway) -> AsyncIterator[list[Instrument]]:
    """Policies are taken up when the file changes and on SIGHUP, for as long as the block lasts."""
    if file is None:
        yield []
        return
    watch = PolicyWatch(file, gateway.tenants, gateway.take_up)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, watch.reload)
    looking = asyncio.create_task(watch.run())
    try:
        yield [watch.reloads]
    finally:
        looking.cancel()


def _source(config: GatewayConfig) -> str:
    return "built in" if config.tenants is None else str(config.tenants)


def _tenants(config: GatewayConfig) -> Tenants:
    if config.tenants is not None:
        return load_tenants(config.tenants)
    return default_tenants(remote=bool(config.drafters), tritonserver=config.tritonserver is not None)


if __name__ == "__main__":
    app()
