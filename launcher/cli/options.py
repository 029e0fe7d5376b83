"""Options that several commands take, and what they mean. Knows the command line; asks nobody."""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from gateway.config import DEFAULT_LISTEN
from launcher import model_fetch
from launcher.terminal import progress
from slipstream import config

DEFAULT_GATEWAY: Final = DEFAULT_LISTEN
SAME_SIGTERM_SECONDS: Final = 1.0

Target = Annotated[str, typer.Option(help="host:port of the gateway.")]
ApiKey = Annotated[str, typer.Option(envvar="SLIPSTREAM_API_KEY", help="The tenant's key.")]
TlsCa = Annotated[
    Path | None, typer.Option(envvar="SLIPSTREAM_TLS_CA", help="PEM CA of the gateway; without it no TLS.")
]
TlsCert = Annotated[Path | None, typer.Option(envvar="SLIPSTREAM_TLS_CERT", help="PEM certificate to show.")]
TlsKey = Annotated[Path | None, typer.Option(envvar="SLIPSTREAM_TLS_KEY", help="PEM key of that certificate.")]
Model = Annotated[str, typer.Option(help="Model name; may be empty if the gateway serves one model.")]
System = Annotated[str, typer.Option(help="System message of a chat.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopK = Annotated[int, typer.Option(help="0 keeps every token.")]
TopP = Annotated[float, typer.Option(help="1 keeps every token.")]
MinP = Annotated[float, typer.Option(help="0 keeps every token.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens of one answer.")]
Seed = Annotated[int | None, typer.Option(help="Seed; the same seed gives the same text.")]
Logprobs = Annotated[
    int | None, typer.Option(help="Log probabilities of the output, with this many likeliest tokens each.")
]
Stop = Annotated[list[str] | None, typer.Option(help="String that ends the output; repeatable.")]
MinTokens = Annotated[int, typer.Option(help="Fewest output tokens; stop strings may end earlier.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Repetition penalty over prompt and output; 1: off.")]
PresencePenalty = Annotated[float, typer.Option(help="Presence penalty over the output, -2 to 2.")]
FrequencyPenalty = Annotated[float, typer.Option(help="Frequency penalty over the output, -2 to 2.")]
LogitBias = Annotated[list[str] | None, typer.Option(help="TOKEN_ID=BIAS, such as 198=-5; repeatable.")]
AllowedTokenId = Annotated[list[int] | None, typer.Option(help="Allow only this token id; repeatable.")]
BadWord = Annotated[list[str] | None, typer.Option(help="Forbidden token ids in a row, such as 198,284; repeatable.")]
NumSamples = Annotated[int, typer.Option("--n", help="Number of samples of the prompt.")]
Echo = Annotated[bool, typer.Option("--echo", help="Print the prompt before the output.")]
PromptLogprobs = Annotated[bool, typer.Option("--prompt-logprobs", help="Log probabilities of the prompt too.")]
JsonSchema = Annotated[Path | None, typer.Option(help="File of the JSON schema that the output keeps to.")]
Regex = Annotated[str | None, typer.Option(help="Regular expression that the whole output matches.")]
Grammar = Annotated[Path | None, typer.Option(help="EBNF file that the output keeps to; its start is root.")]
Choice = Annotated[list[str] | None, typer.Option(help="Allow this output; repeatable.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Timeout = Annotated[float, typer.Option(help="Longest time for one answer, seconds.", min=0.001, max=1e6)]


def fetch_default_model() -> Path:
    """Brings it to disk if it is not there."""
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


def stop_on_sigterm() -> None:
    """SIGTERM unwinds as Ctrl-C does, so that what was started is stopped.

    One that follows within a second is the same: make and timeout send it to us, and to the group that we are in. It
    must not interrupt the unwinding, for a channel that is closed by half never lets the interpreter end.
    """
    last = -math.inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        since, last = time.monotonic() - last, time.monotonic()
        if since > SAME_SIGTERM_SECONDS:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGTERM, stop)
