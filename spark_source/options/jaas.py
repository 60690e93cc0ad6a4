"""The text of `kafka.sasl.jaas.config`, read by the grammar of Java's JaasConfig. Pure; no error quotes the text.

Java splits the text with a StreamTokenizer, and so does this module: the same words, quotes, escapes and comments.

    config  = module flag *option ";"        exactly one, and nothing but comments behind it
    flag    = required | requisite | sufficient | optional   (in any case)
    option  = name "=" value                 no commas; of two options with the same name, the last one counts
    value   = "quoted" | 'quoted' | bare
    bare    = letter *(letter | digit | "." | "_" | "-" | "$")

Three things are errors here that Java reads in its own way, because it reads something else than what is written:
a quote that the line ends (Java closes it there), a single "/" outside quotes (Java skips the rest of the line), and a
name that is no word (Java takes all of these for the same option).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiokc.errors import ConfigError

_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_EXAMPLE: Final = '<class of the login module> required username="..." password="...";'

# What StreamTokenizer skips: characters up to the blank, and comments. One that is not closed reaches to the end.
_SKIPPED: Final = re.compile(r"(?:[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/|/\*.*)*", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9._$\xa0-\U0010ffff-]*")
_QUOTED: Final = {
    quote: re.compile(rf"{quote}([^{quote}\\\r\n]*(?:\\.[^{quote}\\\r\n]*)*){quote}", re.DOTALL) for quote in "\"'"
}
# \477 is \47 and the character 7, as in Java.
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class JaasEntry:
    """The one login module of a JAAS text, and its options; their values are not in the repr."""

    module: str
    options: Mapping[str, str] = field(repr=False)
    #: For each option: "line 1, column 9", where its name begins.
    places: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    kind: str  # "word", "=", ";", "end"
    text: str
    at: int


def parse_jaas(option: str, text: str) -> JaasEntry:
    """Return the login module of ``text`` and its options. Raises ConfigError, which names ``option`` and a place."""
    tokens = _tokens(option, text)
    module = next(tokens)
    if module.kind == "end":
        raise ConfigError(f"option '{option}' is empty; give {_EXAMPLE}")
    if module.kind != "word" or not module.text:
        raise _wrong(option, text, module.at, "a login module's class is due")
    flag = next(tokens)
    if flag.kind != "word" or flag.text.upper() not in _FLAGS:
        raise _wrong(option, text, flag.at, f"behind the login module one of {', '.join(_FLAGS).lower()} is due")
    options: dict[str, str] = {}
    places: dict[str, str] = {}
    while (name := next(tokens)).kind != ";":
        if name.kind == "end":
            raise _wrong(option, text, name.at, "the ';' that ends the entry is missing")
        value = _value(option, text, name, tokens)
        options[name.text], places[name.text] = value, _place(text, name.at)
    if (behind := next(tokens)).kind != "end":
        raise _wrong(option, text, behind.at, "something stands behind the ';'; exactly one login module is possible")
    return JaasEntry(module.text, options, places)


def _value(option: str, text: str, name: _Token, tokens: Iterator[_Token]) -> str:
    if name.kind != "word":
        raise _wrong(option, text, name.at, "an option's name is due")
    equals = next(tokens)
    if equals.kind != "=":
        raise _wrong(option, text, equals.at, "a '=' and a value are due behind an option's name")
    value = next(tokens)
    if value.kind != "word":
        raise _wrong(option, text, value.at, "a value is due behind the '='")
    return value.text


def _tokens(option: str, text: str) -> Iterator[_Token]:
    """Yield what StreamTokenizer would; at the end, "end" for ever."""
    at = 0
    while True:
        if skipped := _SKIPPED.match(text, at):
            at = skipped.end()
        if at == len(text):
            yield _Token("end", "", at)
            continue
        begin, first = at, text[at]
        if first in "=;":
            at += 1
            yield _Token(first, first, begin)
        elif first in _QUOTED:
            quoted = _QUOTED[first].match(text, at)
            if quoted is None:
                raise _wrong(option, text, at, "this quote is not closed on its line; inside it write \\n for an end")
            at = quoted.end()
            yield _Token("word", _ESCAPE.sub(_unescaped, quoted[1]), begin)
        elif word := _WORD.match(text, at):
            at = word.end()
            yield _Token("word", word[0], begin)
        else:
            raise _wrong(option, text, at, _reason(first))


def _reason(first: str) -> str:
    if first == ",":
        return "options are separated by blanks, not by commas; quote a value that has a comma"
    # A value may go wrong behind its first letters, as a@b does; so the whole of it needs the quotes.
    return "only letters, digits, '.', '_', '-' and '$' may stand unquoted, a letter first: quote the value"


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _ESCAPED.get(what, what)


def _wrong(option: str, text: str, at: int, what: str) -> ConfigError:
    return ConfigError(f"option '{option}', {_place(text, at)}: {what}; it has the form {_EXAMPLE}")


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
