"""Token ids to text, one by one. Knows bytes and whole characters; knows nothing of sequences or stop strings."""

from __future__ import annotations

import codecs

from slipstream.text.tokenizer import Tokenizer


class Detokenizer:
    """Gives out a character when its last byte has come, never before; the work per token does not grow with the text.

    Bytes that are no UTF-8 become U+FFFD, as they do when the whole text is decoded at once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> str:
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What is left of an unfinished character; to be called when no more tokens come."""
        return self._decoder.decode(b"", final=True)
