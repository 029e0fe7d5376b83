"""Where turns of a chat begin and end, as token ids, found out from the model's template. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.text.chat_template import ChatMessage, ChatTemplate
from slipstream.text.tokenizer import Tokenizer

_FIRST, _ANSWER, _SECOND = "FIRSTQUESTION", "THEANSWER", "SECONDQUESTION"


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """The ids that stand around what user and assistant say."""

    head: tuple[int, ...]  # everything before the first user's text
    to_answer: tuple[int, ...]  # from the end of a user's text to where the answer begins; starts with end_token
    to_question: tuple[int, ...]  # from the end of an answer to where the next user's text begins, likewise
    end_token: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatFrame:
        """Raises ValueError for a template whose two kinds of turn do not end with one and the same token."""
        template = ChatTemplate.from_tokenizer(tokenizer)
        text = template.render(
            [ChatMessage("user", _FIRST), ChatMessage("assistant", _ANSWER), ChatMessage("user", _SECOND)]
        )
        head, rest = text.split(_FIRST)
        _, rest = rest.split(_ANSWER)
        to_question, to_answer = rest.split(_SECOND)
        before, answer, question = (
            tokenizer.encode(part, add_special_tokens=False) for part in (head, to_answer, to_question)
        )
        if not answer or not question or answer[0] != question[0]:
            raise ValueError(f"turns end with {to_answer!r} and {to_question!r}; both must begin with one end token")
        return cls(before, answer, question, end_token=answer[0])

    def question(self, text_ids: tuple[int, ...]) -> tuple[int, ...]:
        """A whole prompt of one user turn: the answer is to be written next."""
        return self.head + text_ids + self.to_answer

    def opening(self, text_ids: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A prompt that stops inside the user's turn, after its first words if any are given."""
        return self.head + text_ids
