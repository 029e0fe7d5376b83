"""One sequence's grammar beside its drafts: where they must be cut, and what it forces. Knows no other sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidRequest
from slipstream.grammar.compiler import CompiledGrammar
from slipstream.request import SequenceRequest
from slipstream.text.tokenizer import Tokenizer
from verifier_svc.draft_tree import DraftPath
from verifier_svc.grammar_budget import GrammarBudget

NAME = "grammar"  # of the proposer whose drafts are forced text


class Guide:
    """Moves on by committed tokens only."""

    def __init__(self, compiled: CompiledGrammar, request: SequenceRequest, tokenizer: Tokenizer) -> None:
        """Takes in what is committed of a sequence that moved here. InvalidRequest if the grammar forbids it."""
        # A stop token that is text ends the output wherever it comes; one that is none comes only as an end token.
        ends = (token_id for token_id in request.sampling.stop_token_ids if not tokenizer.token_bytes(token_id))
        self._matcher = compiled.matcher(set(ends))
        self._tokenizer = tokenizer
        self._budget = GrammarBudget()
        self._forced: tuple[int, ...] | None = None  # not looked for since the last commit
        output = request.token_ids[request.num_prompt_tokens :]
        if not self.allows(output):
            raise InvalidRequest(f"grammar forbids the {len(output)} output tokens that are committed already")
        self.advance(output)

    @property
    def is_too_slow(self) -> bool:
        """Whether it takes more of everyone's time than a grammar may."""
        return self._budget.is_overdrawn

    def allows(self, token_ids: Sequence[int]) -> bool:
        with self._budget.spent():
            return self._matcher.num_allowed(token_ids) == len(token_ids)

    def advance(self, token_ids: Sequence[int]) -> None:
        """Takes committed tokens."""
        with self._budget.spent():
            num_allowed = self._matcher.advance(token_ids)
        self._budget.note_tokens(len(token_ids))
        assert num_allowed == len(token_ids), f"token {num_allowed} of {token_ids} was committed against the grammar"
        self._forced = None

    def cut(self, path: DraftPath) -> DraftPath:
        """The path up to its first illegal token, which the target cannot give: no row is spent from there on."""
        with self._budget.spent():
            legal = self._matcher.num_allowed([token.token_id for token in path.tokens])
        if legal == len(path.tokens):
            return path
        proposer = path.proposer if legal else ""  # nothing of it is submitted
        return DraftPath(proposer, path.tokens[:legal], cut=path.tokens[legal])

    def filler(self, path: DraftPath) -> Callable[[npt.NDArray[np.int32]], None]:
        """Writes the masks of a pass over a path that was cut."""
        token_ids = [token.token_id for token in path.tokens]

        def fill(bits: npt.NDArray[np.int32]) -> None:
            with self._budget.spent():
                self._matcher.fill(token_ids, bits)

        return fill

    @property
    def forced_tokens(self) -> tuple[int, ...]:
        """Text that must come, as the tokenizer writes it. A draft like any other: the model may write it otherwise."""
        if self._forced is None:
            with self._budget.spent():
                self._forced = self._encode(self._matcher.forced_text)
        return self._forced

    def _encode(self, text: str) -> tuple[int, ...]:
        """Nothing if the tokenizer does not write this very text, as those do that put a space before it."""
        token_ids = self._tokenizer.encode(text, add_special_tokens=False) if text else ()
        written = b"".join(self._tokenizer.token_bytes(token_id) for token_id in token_ids)
        return token_ids if written == text.encode() else ()
