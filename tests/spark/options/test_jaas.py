"""`kafka.sasl.jaas.config` is read as Java reads it. Texts that Java reads otherwise than they are written are refused.

All texts, those of the table and random ones, go through Java's own parser in one JVM.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aiokc.errors import ConfigError
from spark_source.options.jaas import parse_jaas
from tests.suite.peers.java_programs import answers_of

OPTION = "kafka.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
REFUSED = None

Read = tuple[str, Mapping[str | None, str]]  # the module, and its options

#: Texts, and what both parsers read; None: both refuse.
TABLE: Sequence[tuple[str, Read | None]] = [
    (f'{PLAIN} required username="alice" password="secret";', (PLAIN, {"username": "alice", "password": "secret"})),
    ("m required;", ("m", {})),
    ("m REQUIRED;", ("m", {})),
    ("m Requisite; ", ("m", {})),
    ("\tm\nsufficient\r\n;\n", ("m", {})),
    ("m optional a=b;", ("m", {"a": "b"})),
    ("m ſufficıent;", ("m", {})),  # Java compares in upper case
    ("m needed;", REFUSED),
    ("m;", REFUSED),
    ("m", REFUSED),
    ("", REFUSED),
    (" // nothing", REFUSED),
    (";", REFUSED),
    ("'' required;", REFUSED),
    ("m required", REFUSED),
    ("m required a=b", REFUSED),
    ("m required; m required;", REFUSED),
    ("m required;;", REFUSED),
    ("m required; // the end", ("m", {})),
    ("m required; /* the end", ("m", {})),
    ("m required /* the end", REFUSED),
    ("/*/ m */ m /**/ required // a=b\n a=c;", ("m", {"a": "c"})),
    ("m//x\rrequired;", ("m", {})),
    ("m/**/required;", ("m", {})),
    ("m required a = \n 'b' ;", ("m", {"a": "b"})),
    ("m required a=b, c=d;", REFUSED),
    ("m required a=b c=d;", ("m", {"a": "b", "c": "d"})),
    ("m required a=b a=c;", ("m", {"a": "c"})),
    ("m required a='b'c=\"d\";", ("m", {"a": "b", "c": "d"})),
    ("m required a b;", REFUSED),
    ("m required a=;", REFUSED),
    ("m required a==b;", REFUSED),
    ("m required =b;", REFUSED),
    ("m required a;", REFUSED),
    ("m required a=123;", REFUSED),
    ("m required a=1b;", REFUSED),
    ("m required a=-5;", REFUSED),
    ("m required a=-b;", REFUSED),
    ("m required a=.5;", REFUSED),
    ("m required a=a@b;", REFUSED),
    ("m required a=b1.2-3_4$;", ("m", {"a": "b1.2-3_4$"})),
    ("m required _a=$b;", ("m", {"_a": "$b"})),
    ("m required a=äöü\u00a0\U0001f511;", ("m", {"a": "äöü\u00a0\U0001f511"})),
    ("m required a=b\x7f;", REFUSED),
    ("m required a=b\x9f;", REFUSED),
    ('"m" "required" "a"="b" \'\'="";', ("m", {"a": "b", "": ""})),
    ('m required a "=" b;', REFUSED),
    ('m required a=b ";";', REFUSED),
    ('m required a=";"; ', ("m", {"a": ";"})),
    (
        """m required a="Endpoint=sb://x.net/;Key=a'b==" b='"';""",
        ("m", {"a": "Endpoint=sb://x.net/;Key=a'b==", "b": '"'}),
    ),
    (r'm required a="\"\\\'\a\b\f\n\r\t\v\q";', ("m", {"a": "\"\\'\a\b\f\n\r\t\vq"})),
    (r"m required a='\101\7\08\400\377\477\1018';", ("m", {"a": "A\7\0" + "8" + " 0" + "\xff" + "'7" + "A8"})),
    ('m required a="a\\\nb";', ("m", {"a": "a\nb"})),
    ('m required a="b\\";', REFUSED),
    ('m required a="b\\', REFUSED),
    ("m required a=\"//b\" c='/*d*/';", ("m", {"a": "//b", "c": "/*d*/"})),
    ("m required a=b */;", REFUSED),
    ("m required [a=b];", REFUSED),
]

#: Refused here on purpose: the text, what Java reads, and what the error says.
STRICTER: Sequence[tuple[str, Read, str]] = [
    ('m required a="b\n;', ("m", {"a": "b"}), "line 1, column 14: this quote is not closed on its line"),
    ("m required\n a=b/c d=e\n;", ("m", {"a": "b"}), "line 2, column 5: only letters"),
    ("m required /a=b\n;", ("m", {}), "line 1, column 12: only letters"),
    ("m required 12=b;", ("m", {None: "b"}), "line 1, column 12: only letters"),
    ("m required ,=b;", ("m", {None: "b"}), "line 1, column 12: options are separated by blanks"),
    ("m required a=b ==c;", ("m", {"a": "b", None: "c"}), "line 1, column 16: an option's name is due"),
]

BARE = st.from_regex(r"\A[A-Za-z_$\xa0-\u2fff][A-Za-z0-9._$\xa0-\u2fff-]*\Z")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLAGS = st.sampled_from(["required", "Requisite", "SUFFICIENT", "optional"])
GAPS = st.sampled_from([" ", "\n", "\t ", " // a comment; 'x'\n", '/* ; " = \n */', "/**/", "\r\n"])
NO_GAPS = st.just("") | GAPS


def quoted(text: str, mark: str, octal: bool) -> str:
    """Return ``text`` as a JAAS value in quotes."""
    escaped = text.replace("\\", "\\\\").replace(mark, "\\" + mark).replace("\n", "\\n").replace("\r", "\\r")
    if octal:
        escaped = "".join(f"\\{ord(c):03o}" if ord(c) < 256 and c not in "\\" + mark else c for c in text if c != "\\")
        escaped = escaped.replace(mark, "\\" + mark)
    return f"{mark}{escaped}{mark}"


QUOTED = st.builds(quoted, TEXT, st.sampled_from("\"'"), st.booleans())


@st.composite
def well_formed(draw: st.DrawFn) -> str:
    """Return a text of the grammar."""
    text = draw(NO_GAPS) + draw(BARE) + draw(GAPS) + draw(FLAGS)
    for name in draw(st.lists(BARE, max_size=4)):
        text += draw(GAPS) + name + draw(NO_GAPS) + "=" + draw(NO_GAPS) + draw(BARE | QUOTED)
    return text + draw(NO_GAPS) + ";" + draw(NO_GAPS)


PIECES = ["m", "required", "a", "b.c", "=", ";", ",", "1", "-", ".", "/", "*", '"', "'", "\\", "\n", "\r", " ", "\t"]
PIECES += ["//", "/*", "*/", "\\1", "\\477", "é", "\U0001f511", "\x7f", "\x85", "@", "m required ", "a=", "'x'", '"y"']
GOOD = ["a=b ", "a='x'", 'b="y;" ', "c = d\t", "//z\n", "/*z*/", "é=é\n", "b=c.d-e ", "a='\\'' ", 'a="\\501\\1" ']
ODD = st.sampled_from(GOOD) | st.sampled_from(PIECES)
NEARLY = st.builds("m required {};".format, st.lists(st.sampled_from(GOOD) | ODD, max_size=4).map("".join))
ANYTHING = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def asked_java(texts: Sequence[str]) -> list[Read | None]:
    """Return what Java's clients read from each text."""
    asked = "".join(b64encode(text.encode()).decode() + "\n" for text in texts)
    answers = answers_of(Path(__file__).with_name("JavaJaas.java"), asked)
    assert len(answers) == len(texts)
    return [_read(answer) for answer in answers]


def _read(answer: str) -> Read | None:
    if answer == "refused":
        return None
    module, *options = (None if part == "-" else b64decode(part[1:]).decode() for part in answer.split(" "))
    assert module is not None
    return module, {name: value or "" for name, value in zip(options[::2], options[1::2], strict=True)}


def read_here(text: str) -> Read | None:
    try:
        entry = parse_jaas(OPTION, text)
    except ConfigError:
        return None
    return entry.module, dict(entry.options.items())


def examples_of(strategy: st.SearchStrategy[str], count: int) -> list[str]:
    """Return texts of this strategy: the same ones in each run."""
    found: list[str] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(strategy)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return found


def is_stricter_here(text: str) -> bool:
    """Return whether this is one of the three kinds of text that Java reads, and that are refused here on purpose."""
    try:
        parse_jaas(OPTION, text)
    except ConfigError as error:
        return any(said in str(error) for said in ("this quote is not", "only letters", "commas", "name is due"))
    return False


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_the_table(text: str, expected: Read | None) -> None:
    assert read_here(text) == expected


@pytest.mark.parametrize(("text", "by_java", "said"), STRICTER)
def test_what_java_reads_in_its_own_way_is_refused(text: str, by_java: Read, said: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{OPTION}', {said}"):
        parse_jaas(OPTION, text)


@pytest.mark.kafka
def test_java_reads_the_same() -> None:
    by_grammar = examples_of(well_formed(), 300)
    at_random = examples_of(NEARLY, 600) + examples_of(ANYTHING, 300)
    table = [text for text, _ in TABLE] + [text for text, _, _ in STRICTER]

    by_java = asked_java([*table, *by_grammar, *at_random])
    of_table, of_grammar, of_random = (
        by_java[: len(table)],
        by_java[len(table) : len(table) + len(by_grammar)],
        by_java[len(table) + len(by_grammar) :],
    )

    assert of_table == [expected for _, expected in TABLE] + [expected for _, expected, _ in STRICTER]
    assert None not in of_grammar
    assert [read_here(text) for text in by_grammar] == of_grammar
    differing = [
        (text, expected)
        for text, expected in zip(at_random, of_random, strict=True)
        if read_here(text) != expected and not (expected is not None and is_stricter_here(text))
    ]
    assert differing == []
    accepted = sum(read_here(text) is not None for text in at_random)
    assert 50 < accepted < len(at_random) - 50, "the random texts are of one kind only"


@pytest.mark.parametrize(
    "text",
    [
        'm required password="ca"na"ry";',
        "m required password=ca@nary;",
        'm required password="ca nary;',
        'm required password="ca" nary;',
        "m required password=7canary;",
        "m canary;",
        "canary",
        'm required password="canary" nary;',
    ],
)
def test_errors_quote_nothing(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(OPTION, text)

    assert "nary" not in str(caught.value)
    assert "nary" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_the_repr_of_what_was_read_has_no_value() -> None:
    entry = parse_jaas(OPTION, 'm required\n  password="canary";')

    assert "canary" not in repr(entry)
    assert entry.places == {"password": "line 2, column 3"}
