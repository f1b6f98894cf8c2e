"""
The tokens of a parser that goes on after errors, with the messages of upstream's parser generator.

A rule that fails reports, skips tokens until one that can follow it or a rule around it, and its caller goes on; so
several errors of a text are found. Source: antlr4 error_strategy.go, cel-go parser/parser.go.
"""

from collections.abc import Iterable
from typing import Final

from scheduler.engine.cel.lexer import EOF, KINDS, Token, shown, tokens_of
from scheduler.engine.cel.syntax_tree import Literal, Node, Source

_MAX_RECOVERIES: Final = 30
_ORDER: Final = {kind: index for index, kind in enumerate(KINDS)}
NO_KINDS: Final[frozenset[str]] = frozenset()


class RuleError(Exception):
    """A rule does not match; `partial` is what it made of the tokens before, if anything."""

    def __init__(self, message: str, token: Token) -> None:
        super().__init__(message)
        self.message = message
        self.token = token
        self.partial: Node | None = None


class GiveUpError(Exception):
    """The parser stops; the reason was reported."""


class RecoveringTokens:
    """The tokens of a text. `_follow` holds, for each rule around, what may follow and whether it may end there."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._index = 0
        self._follow: list[tuple[frozenset[str], bool]] = []
        self._is_recovering = False
        self._last_error: tuple[int, set[str]] = (-1, set())
        self._n_recoveries = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _kind(self, ahead: int = 0) -> str:
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)].kind

    def _advance(self) -> Token:
        token = self._token
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def _take(self) -> Token:
        self._is_recovering = False
        return self._advance()

    def _report(self, token: Token, message: str) -> None:
        if not self._is_recovering:
            self._is_recovering = True
            self._source.error(token.position, f"Syntax error: {message}")

    def _match(self, kind: str, then: frozenset[str], *, may_end: bool = False) -> Token:
        """Return the token, which must be of the kind; a superfluous or missing one is reported and forgiven."""
        token = self._token
        if token.kind == kind:
            return self._take()
        self._count_recovery()
        if self._kind(1) == kind:
            self._report(token, f"extraneous input {_name(token)} expecting {_list({kind})}")
            self._advance()
            return self._take()
        if token.kind in (then | (self._after() if may_end else NO_KINDS)):
            self._report(token, f"missing {_list({kind})} at {_name(token)}")
            return Token(kind, f"<missing {_list({kind})}>", token.position)
        raise _mismatch(token, {kind})

    def _sync(self, expected: frozenset[str]) -> None:
        """Check that a token that is expected comes next; a superfluous one before it is reported and skipped."""
        token = self._token
        if self._is_recovering or token.kind in expected:
            return
        if self._kind(1) in expected:
            self._report(token, f"extraneous input {_name(token)} expecting {_list(expected)}")
            self._advance()
            self._is_recovering = False
            return
        raise _mismatch(token, expected)

    def _sync_loop(self, expected: frozenset[str]) -> None:
        """Check that a token that goes on with a loop or ends it comes next; report and skip others."""
        if self._is_recovering or self._kind() in expected:
            return
        self._report(self._token, f"extraneous input {_name(self._token)} expecting {_list(expected)}")
        self._skip_until(expected)

    def _skip_until(self, kinds: frozenset[str]) -> None:
        """Skip tokens until one of the kinds comes, or one that may follow this rule or one around it."""
        kinds = kinds.union(*(follow for follow, _ in self._follow)) | {EOF}
        while self._kind() not in kinds:
            self._advance()

    def _after(self) -> frozenset[str]:
        """Return what may follow the rule here."""
        kinds: frozenset[str] = NO_KINDS
        for follow, may_end in reversed(self._follow):
            kinds |= follow
            if not may_end:
                break
        return kinds

    def _count_recovery(self) -> None:
        if self._n_recoveries == _MAX_RECOVERIES:
            self._source.error(
                self._token.position,
                f"Syntax error: error recovery attempt limit exceeded: {_MAX_RECOVERIES}",
            )
            raise GiveUpError
        self._n_recoveries += 1

    def _recover(self, rule: str, error: RuleError) -> Node:
        """Report an error, skip what cannot follow, and return what stands for the rule."""
        self._report(error.token, error.message)
        self._count_recovery()
        index, rules = self._last_error
        if index == self._index and rule in rules:
            self._advance()
        self._last_error = (self._index, {*rules, rule} if index == self._index else {rule})
        self._skip_until(NO_KINDS)
        return error.partial or Literal(error.token.position, "<<error>>")

    def _no_viable(self, n_tokens: int) -> RuleError:
        """Return the error that no rule begins with the next tokens."""
        last = self._tokens[min(self._index + n_tokens - 1, len(self._tokens) - 1)]
        start = self._token.position
        text = self._source.text[start : last.position] + (last.text if last.kind != EOF else "")
        return RuleError(f"no viable alternative at input '{shown(text)}'", last)


def _mismatch(token: Token, expected: Iterable[str]) -> RuleError:
    return RuleError(f"mismatched input {_name(token)} expecting {_list(expected)}", token)


def _name(token: Token) -> str:
    return f"'{shown(token.text)}'"


def _list(kinds: Iterable[str]) -> str:
    """Return kinds of tokens as a message lists them."""
    names = [
        kind if kind == EOF or (kind[0].isupper() and kind.isidentifier()) else f"'{kind}'"
        for kind in sorted(kinds, key=_ORDER.__getitem__)
    ]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
