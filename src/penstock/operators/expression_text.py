"""Read an expression that is written as text, as in `ps.expr("price % 100 > 5 and user is not null")`.

A small language with fields, constants, operators and functions; nothing of it is Python, and nothing is executed. What
comes out is a tree, each part of which knows its place in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from penstock.errors import FlowError

_TOKENS = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<name>[^\W\d]\w*)
    |`(?P<quoted>[^`]+)`
    |(?P<sign>//|<=|>=|<>|!=|==|[-+*/%<>=(),])
    )""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "is", "null", "in", "between", "like", "true", "false"}
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_DEEPEST = 100
"""Parts inside one another: Python's own stack ends somewhere."""


@dataclass(frozen=True)
class TextPart:
    """A part of an expression: an operator or function with its arguments, a field, or a constant."""

    kind: str
    """field, constant, call"""
    value: Any
    """The field's name, the constant, or the name of the operator or function."""
    at: int
    arguments: tuple[TextPart, ...] = ()
    depth: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max((each.depth for each in self.arguments), default=0))


class Token(NamedTuple):
    kind: str
    value: str
    at: int


def refuse(text: str, at: int, problem: str, operator: str | None = None) -> NoReturn:
    whose = "ps.expr" if operator is None else f"operator {operator!r}: ps.expr"
    rest, before = " ".join(text[at:].split()), " ".join(text[:at].split())
    shown = f"where it says {_cut(rest)!r}" if rest else f"after {_cut(before[::-1])[::-1]!r}"
    raise FlowError(f"{whose}: {problem}; at character {at + 1} of the text, {shown}")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def parse(text: str) -> TextPart:
    """Read an expression; refuse a bad one by the place in its text."""
    if not isinstance(text, str):
        raise FlowError(f'ps.expr takes a text, for example ps.expr("price % 100 > 5"), not {text!r}')
    reader = _Reader(text, _tokens(text))
    tree = reader.either()
    if reader.now.kind != "end":
        reader.refuse_token("an operator, or the end")
    if tree.depth > _DEEPEST:
        refuse(text, tree.at, f"more than {_DEEPEST} parts are inside one another; use several select()")
    return tree


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKENS.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            unclosed = text[at] in "'\"`"
            refuse(text, at, f"{text[at]!r} is not closed" if unclosed else f"{text[at]!r} cannot stand here")
        kind = match.lastgroup or ""
        value = match.group(kind)
        if kind == "name" and value.lower() in _WORDS:
            kind, value = "word", value.lower()
        tokens.append(Token(kind, value, match.start(match.lastgroup or 0)))
        at = match.end()
    return [*tokens, Token("end", "the end", len(text))]


class _Reader:
    """Go through the words of a text once, from left to right."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text, self._tokens, self._next, self._depth = text, tokens, 0, 0

    @property
    def now(self) -> Token:
        return self._tokens[self._next]

    def refuse_token(self, wanted: str) -> NoReturn:
        token = self.now
        shown = "the text ends" if token.kind == "end" else f"{token.value!r} stands"
        refuse(self._text, token.at, f"{shown} where {wanted} should be")

    def _take(self, *values: str) -> Token | None:
        token = self.now
        if token.kind not in ("word", "sign") or token.value not in values:
            return None
        self._next += 1
        return token

    def _need(self, value: str) -> Token:
        token = self._take(value)
        if token is None:
            self.refuse_token(repr(value))
        return token

    def either(self) -> TextPart:
        self._depth += 1
        if self._depth > _DEEPEST:
            refuse(self._text, self.now.at, f"more than {_DEEPEST} brackets are inside one another")
        part = self._both()
        while (sign := self._take("or")) is not None:
            part = TextPart("call", "or", sign.at, (part, self._both()))
        self._depth -= 1
        return part

    def _both(self) -> TextPart:
        part = self._negated()
        while (sign := self._take("and")) is not None:
            part = TextPart("call", "and", sign.at, (part, self._negated()))
        return part

    def _negated(self) -> TextPart:
        signs = []
        while (sign := self._take("not")) is not None:
            signs.append(sign)
        part = self._comparison()
        for sign in reversed(signs):
            part = _negation(sign, part)
        return part

    def _comparison(self) -> TextPart:
        left = self._sum()
        sign = self._take(*_COMPARISONS)
        if sign is not None:
            part = TextPart("call", _COMPARISONS[sign.value], sign.at, (left, self._sum()))
            if self.now.value in _COMPARISONS and self.now.kind == "sign":
                refuse(self._text, self.now.at, "comparisons in a row must be joined by 'and'")
            return part
        sign = self._take("is")
        if sign is not None:
            negated = self._take("not")
            self._need("null")
            part = TextPart("call", "is null", sign.at, (left,))
            return part if negated is None else _negation(negated, part)
        negated = self._take("not")
        sign = self._take("in", "between", "like")
        if sign is None:
            if negated is not None:
                self.refuse_token("'in', 'between' or 'like'")
            return left
        part = self._membership(sign, left)
        return part if negated is None else _negation(negated, part)

    def _membership(self, sign: Token, left: TextPart) -> TextPart:
        if sign.value == "like":
            return TextPart("call", "like", sign.at, (left, self._sum()))
        if sign.value == "in":
            return TextPart("call", "in", sign.at, (left, *self._list()))
        low = self._sum()
        self._need("and")
        return TextPart("call", "between", sign.at, (left, low, self._sum()))

    def _list(self) -> list[TextPart]:
        self._need("(")
        parts = [self.either()]
        while self._take(",") is not None:
            parts.append(self.either())
        self._need(")")
        return parts

    def _sum(self) -> TextPart:
        part = self._product()
        while (sign := self._take("+", "-")) is not None:
            part = TextPart("call", sign.value, sign.at, (part, self._product()))
        return part

    def _product(self) -> TextPart:
        part = self._signed()
        while (sign := self._take("*", "/", "//", "%")) is not None:
            part = TextPart("call", sign.value, sign.at, (part, self._signed()))
        return part

    def _signed(self) -> TextPart:
        minuses = []
        while (sign := self._take("-", "+")) is not None:
            minuses += [sign] if sign.value == "-" else []
        part = self._single()
        for sign in reversed(minuses):
            number = part.kind == "constant" and isinstance(part.value, (int, float)) and part.value is not True
            if number and part.value is not False:
                part = TextPart("constant", -part.value, sign.at)
            else:
                part = TextPart("call", "negative", sign.at, (part,))
        return part

    def _single(self) -> TextPart:
        token = self.now
        if self._take("(") is not None:
            part = self.either()
            self._need(")")
            return part
        if self._take("null", "true", "false") is not None:
            return TextPart("constant", {"null": None, "true": True, "false": False}[token.value], token.at)
        if token.kind not in ("number", "text", "name", "quoted"):
            self.refuse_token("a field, a constant or a function")
        self._next += 1
        if token.kind == "number":
            whole = token.value.isdigit()
            if whole and int(token.value) >= 1 << 63:
                refuse(self._text, token.at, f"the number {token.value} does not fit int64")
            return TextPart("constant", int(token.value) if whole else float(token.value), token.at)
        if token.kind == "text":
            quote = token.value[0]
            return TextPart("constant", token.value[1:-1].replace(quote * 2, quote), token.at)
        if token.kind == "name" and self.now.kind == "sign" and self.now.value == "(":
            if self._tokens[self._next + 1].value == ")" and self._tokens[self._next + 1].kind == "sign":
                self._next += 2
                return TextPart("call", f"{token.value.lower()}()", token.at)
            return TextPart("call", f"{token.value.lower()}()", token.at, tuple(self._list()))
        return TextPart("field", token.value, token.at)


def _negation(sign: Token, part: TextPart) -> TextPart:
    return TextPart("call", "not", sign.at, (part,))
