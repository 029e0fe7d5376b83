"""The drafts of one sequence: a tree that grows from its last committed token. Knows tokens; no model, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from slipstream.exchange import Draft, DraftToken, LawKind

MAX_NODES = 1024


@dataclass(slots=True)
class DraftPath:
    """What one pass may check: tokens of one proposer, none of them assumed."""

    proposer: str = ""
    tokens: tuple[DraftToken, ...] = ()
    cut: DraftToken | None = None  # drafted after them, but impossible under the sequence's grammar: not fed


NO_PATH = DraftPath()


@dataclass(slots=True, eq=False)
class _Node:
    """One drafted token. Its law, proposer and draw never change, and no other token's law is ever put here."""

    token: DraftToken
    proposer: str
    draw: int
    verifiable: bool  # not assumed
    children: list[_Node] = field(default_factory=list)

    def stands_for(self, token: DraftToken, proposer: str, draw: int) -> bool:
        """Whether a new token needs no node of its own: it is this one sent again, or refers to this one."""
        if self.proposer != proposer or self.token.token_id != token.token_id:
            return False
        if token.kind is LawKind.ASSUMED:
            return True
        # One draw, or both certain: either way the laws are equal.
        return self.token.kind is token.kind and (self.draw == draw or token.kind is LawKind.ONE_HOT)


class DraftTree:
    """Paths of drafted tokens after the committed prefix.

    The *front* is the set of nodes that the committed tokens led to; their children are candidates for the next
    position. Which path is checked depends only on what was fixed before it was sampled: the order of proposers and the
    order of draws.
    """

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._front = [_origin()]
        self._most_nodes = 0  # counted when it matters: here are those too that are gone

    def __len__(self) -> int:
        return sum(1 for _ in _descendants(self._front))

    def insert(self, proposer: str, draw: int, tokens: Sequence[DraftToken]) -> bool:
        """Adds a path from the front; False if it contradicts an earlier one of the same draw, or is too long."""
        if len(tokens) > self._max_nodes or self._contradicts(proposer, draw, tokens):
            return False
        nodes = self._front
        for token in tokens:
            known = [child for child in _children(nodes) if child.stands_for(token, proposer, draw)]
            known.sort(key=lambda child: (not child.verifiable, child.draw))  # what `best_path` comes by goes first
            nodes = known or [self._add(nodes[0], token, proposer, draw)]
        if self._most_nodes > self._max_nodes:
            self._most_nodes = len(self)
            while self._most_nodes > self._max_nodes:
                self._drop_oldest_draw()
        return True

    def advance(self, token_ids: Sequence[int]) -> None:
        """Descends along final tokens: into every node that agrees. The rest never happened."""
        nodes = self._front
        for token_id in token_ids:
            nodes = [child for node in nodes for child in node.children if child.token.token_id == token_id]
        self._front = nodes or [_origin()]

    def has_path(self, proposers: Sequence[str]) -> bool:
        """Whether `best_path` finds any."""
        return any(child.verifiable and child.proposer in proposers for node in self._front for child in node.children)

    def best_path(self, num_tokens: int, proposers: Sequence[str]) -> DraftPath:
        """The path to check next: of the first proposer that has one, the lowest draw, down to `num_tokens`."""
        return _best_path(self._front, num_tokens, proposers)

    def branches(
        self,
        path: Sequence[DraftToken],  # that is being checked
        limits: Sequence[int],  # most draft tokens to check next, by how many of the path stand
        proposers: Sequence[str],
    ) -> list[tuple[tuple[int, int], DraftPath]]:
        """What would be checked next, by outcome that is drafted for: draft tokens accepted, the token after them.

        The one with the lowest draw comes first: what a drafter drafts first it finds likeliest.
        """
        found: list[tuple[int, tuple[int, int], DraftPath]] = []
        nodes = self._front
        for num_accepted, limit in enumerate(limits):
            ends: dict[int, list[_Node]] = {}
            for child in _children(nodes):
                ends.setdefault(child.token.token_id, []).append(child)
            nodes = ends.pop(path[num_accepted].token_id, []) if num_accepted < len(path) else []
            for token_id, reached in ends.items():
                following = _best_path(reached, limit, proposers)
                if following.tokens:
                    found.append((reached[0].draw, (num_accepted, token_id), following))
        return [(outcome, following) for _, outcome, following in sorted(found, key=lambda branch: branch[:2])]

    def _contradicts(self, proposer: str, draw: int, tokens: Sequence[DraftToken]) -> bool:
        """One draw stands for one token at one place; another token under its number would be a second chance."""
        nodes = self._front
        for token in tokens:
            children = _children(nodes)
            if token.kind is not LawKind.ASSUMED and any(
                child.proposer == proposer
                and child.draw == draw
                and child.verifiable
                and child.token.token_id != token.token_id
                for child in children
            ):
                return True
            nodes = [child for child in children if child.stands_for(token, proposer, draw)]
        return False

    def _add(self, parent: _Node, token: DraftToken, proposer: str, draw: int) -> _Node:
        node = _Node(token, proposer, draw, token.kind is not LawKind.ASSUMED)
        parent.children.append(node)
        self._most_nodes += 1
        return node

    def _drop_oldest_draw(self) -> None:
        oldest = min(node.draw for node in _descendants(self._front))
        parents = [*self._front, *_descendants(self._front)]
        for parent in parents:
            parent.children = [child for child in parent.children if child.draw != oldest]
        self._most_nodes = len(self)


def after_committed(draft: Draft, committed: Sequence[int]) -> tuple[DraftToken, ...]:
    """The part of a draft that lies after the committed tokens; empty if it disagrees with them or ends before.

    A late draft builds on fewer tokens than are final by now: it counts if its first tokens came true.
    """
    num_late = len(committed) - draft.base
    if not 0 <= num_late < len(draft.tokens):
        return ()
    came_true = all(
        token.token_id == final for token, final in zip(draft.tokens, committed[draft.base :], strict=False)
    )
    return draft.tokens[num_late:] if came_true else ()


_NO_TOKEN = DraftToken(0, LawKind.ASSUMED)


def _origin() -> _Node:
    """A front without drafts behind it; its token is never looked at."""
    return _Node(_NO_TOKEN, "", 0, verifiable=False)


def _best_path(front: Sequence[_Node], num_tokens: int, proposers: Sequence[str]) -> DraftPath:
    candidates = [child for node in front for child in node.children if child.verifiable]
    for proposer in proposers if candidates else ():
        tokens = _walk(candidates, num_tokens, proposer)
        if tokens:
            return DraftPath(proposer, tuple(tokens))
    return NO_PATH


def _walk(candidates: list[_Node], num_tokens: int, proposer: str) -> list[DraftToken]:
    """From one of the candidates on, down to `num_tokens`, always by the lowest draw."""
    tokens: list[DraftToken] = []
    while len(tokens) < num_tokens:
        drawn = [child for child in candidates if child.proposer == proposer and child.verifiable]
        if not drawn:
            break
        node = drawn[0] if len(drawn) == 1 else min(drawn, key=lambda child: child.draw)
        tokens.append(node.token)
        candidates = node.children
    return tokens


def _children(nodes: Sequence[_Node]) -> list[_Node]:
    return [child for node in nodes for child in node.children]


def _descendants(nodes: Sequence[_Node]) -> Iterator[_Node]:
    pending = _children(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.children)
