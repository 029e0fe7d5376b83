"""The `slipstream` command: its commands, and how mistakes are reported. Does nothing itself."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from launcher import train
from launcher.cli import adapters, ask, evaluate, models, policy, serve
from slipstream import errors
from slipstream.version import version as package_version

CALLERS_MISTAKES = (ValueError, errors.UnknownModel, errors.Unauthenticated, errors.VocabularyMismatch)
OTHER_FAILURES = (RuntimeError, OSError)  # ours derive from RuntimeError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Speculative decoding, taken apart.")
app.add_typer(serve.app)
app.add_typer(ask.app)
app.add_typer(evaluate.app)
app.add_typer(models.app, name="model")
app.add_typer(adapters.app, name="adapters")
app.add_typer(policy.app, name="policy")
app.add_typer(train.app, name="train")


def main() -> None:
    """Exit code 2 for the caller's mistakes, 1 for what else can go wrong; one line for each mistake."""
    try:
        app(prog_name="slipstream")
    except (*CALLERS_MISTAKES, *OTHER_FAILURES) as error:
        for line in (str(error) or type(error).__name__).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2 if isinstance(error, CALLERS_MISTAKES) else 1)


@app.command()
def version() -> None:
    """Print the version."""
    print(f"slipstream {package_version()}")


def _say_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def common(
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What stands before any command."""


if __name__ == "__main__":
    main()
