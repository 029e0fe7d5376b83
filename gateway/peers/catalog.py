"""Which models are served, and the text tools of each. Knows verifiers' answers; knows no request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.peers.peers import VerifierLink, VerifierPool
from gateway.peers.tokenizer_store import TextTools, TokenizerStore
from slipstream.errors import InvalidRequest, Unavailable, UnknownModel, quoted
from slipstream.exchange import ModelInfo


@dataclass(frozen=True, slots=True)
class ServedModel:
    info: ModelInfo
    text: TextTools


class Catalog:
    def __init__(self, verifiers: VerifierPool, tokenizers: TokenizerStore) -> None:
        self._verifiers = verifiers
        self._tokenizers = tokenizers

    def find(self, name: str) -> ServedModel:
        """By name, or the only one if the name is empty; also while its verifier is away for a moment."""
        known = self._links_by_model()
        if not known:
            addresses = ", ".join(link.address for link in self._verifiers.links)
            raise Unavailable(f"no verifier has been reached yet (asked: {addresses}); try again")
        if not name and len(known) > 1:
            raise InvalidRequest(f"model is ''; it must be one of {', '.join(sorted(known))}")
        chosen = name or next(iter(known))
        if chosen not in known:
            raise UnknownModel(
                f"model {quoted(chosen)} is not served here; it must be one of {', '.join(sorted(known))}"
            )
        link = known[chosen]
        assert link.info is not None
        return ServedModel(link.info, self._tokenizers.of(link.address))

    async def list(self) -> list[ModelInfo]:
        """The models that can be used now, with their present load."""
        await asyncio.gather(*(link.refresh() for link in self._verifiers.available))
        available = {link.info.name: link.info for link in self._verifiers.available if link.info is not None}
        return [available[name] for name in sorted(available)]

    def _links_by_model(self) -> dict[str, VerifierLink]:
        links = sorted(self._verifiers.links, key=lambda link: link.available)  # an available one wins
        return {link.info.name: link for link in links if link.info is not None}
