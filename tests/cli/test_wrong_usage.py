"""Every command with what is wrong: a sentence on stderr, the right exit code, nothing on stdout, no traceback."""

from __future__ import annotations

import logging
import threading

import pytest

from aiokc.cli.commands.table import COMMANDS
from aiokc.cli.exit_codes import MEANINGS
from aiokc.cli.main import main, report
from aiokc.cli.parser import module_of, parser_of
from aiokc.cli.problems import Problem
from aiokc.cli.threads import in_daemon_thread
from aiokc.testing import Cluster
from tests.cli.running import Result, Stream, aiokc, system_of

#: The least that each command needs beside options. A command that is not here needs nothing.
ARGUMENTS = {
    "topics show": ["events"],
    "offsets": ["events"],
    "cat": ["events"],
    "tail": ["events"],
    "bench": ["events"],
    "perf": ["events"],
    "produce": ["events"],
    "groups show": ["g"],
    "groups kick": ["g", "--member", "m"],
    "groups delete": ["g"],
    "groups forget": ["g", "events"],
    "reset-offsets": ["g", "events", "--to", "0"],
    "completion": ["bash"],
}
WITH_CLUSTER = [name for name in COMMANDS if getattr(module_of(name), "NEEDS_CLUSTER", True) and name != "config show"]
READING = [name for name in WITH_CLUSTER if name != "produce"]  # the options of a consumer are theirs
#: Commands of whose arguments the topic is one.
WITH_TOPIC = [name for name, words in ARGUMENTS.items() if words == ["events"]]


def called(name: str, *words: str) -> list[str]:
    return [*name.split(), *ARGUMENTS.get(name, []), *words]


def refused(result: Result, code: int, sentence: str = "") -> None:
    """The command has ended with ``code``, and with a sentence that names what is wrong."""
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert "defect" not in result.err
    assert sentence in result.err


@pytest.mark.parametrize("name", COMMANDS)
async def test_an_unknown_option(name: str) -> None:
    refused(await aiokc(*called(name, "--jsno")), 2, "unknown option --jsno; did you mean --json?")


@pytest.mark.parametrize("name", READING)
async def test_an_unknown_option_of_the_client(name: str) -> None:
    refused(await aiokc(*called(name, "-X", "fetch.wait.max.mss=1")), 2, "did you mean fetch_wait_max_ms?")


@pytest.mark.parametrize("name", READING)
async def test_a_value_out_of_range(name: str) -> None:
    refused(await aiokc(*called(name, "-X", "fetch_max_bytes=-1")), 2, "fetch_max_bytes=-1 must be at least 1")


@pytest.mark.parametrize("name", [name for name in WITH_CLUSTER if name != "doctor"])  # it looks at the options
async def test_an_option_that_the_client_would_not_use(name: str) -> None:
    async with Cluster() as cluster:
        result = await aiokc(*called(name, "-X", "session.timeout.ms=9000"), bootstrap=cluster.bootstrap)
    refused(result, 2, "option 'session.timeout.ms' is not one of a ")


@pytest.mark.parametrize("name", [name for name in WITH_CLUSTER if name != "doctor"])  # to it that is a result
async def test_a_broker_that_is_gone(name: str) -> None:
    async with Cluster() as cluster:
        gone = cluster.bootstrap
    refused(await aiokc(*called(name, "-b", gone, "--timeout", "200ms")), 5, gone)


@pytest.mark.parametrize("name", WITH_TOPIC)
async def test_an_unknown_topic(name: str) -> None:
    async with Cluster(topics={"event": 1}) as cluster:
        result = await aiokc(*called(name, "--timeout", "20s", "--json"), bootstrap=cluster.bootstrap)
        refused(result, 1, "there is no topic 'events'; did you mean event?")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tpoics", "unknown command 'tpoics'; did you mean topics?"),
        ("consume orders", "unknown command 'consume'; here that is tail, and cat up to the end"),
        ("reset billing", "unknown command 'reset'; here that is reset-offsets"),
        ("--nope", "no command is given"),
        ("topics a b", "unexpected 'b'"),
        ("topics create x --partitions 3", "Kafka's own tools do (kafka-topics.sh)"),
        ("topics delete x", "Kafka's own tools do (kafka-topics.sh)"),
        ("topics --timeout soon", "--timeout: 'soon' is no duration"),
        ("topics --timeout 0", "--timeout: '0' leaves no time"),
        ("--timeout 0 topics", "--timeout: '0' leaves no time"),
        ("--timeout 0.5ms topics", "--timeout: '0.5ms' leaves no time"),
        ("--timeout -1 topics", "--timeout: '-1' is no duration"),
        ("topics --color blue", "invalid choice"),
        ("topics --json --csv", "not allowed with"),
        ("topics -b", "expected one argument"),
        ("topics -b host:port", "host:port"),
        ("topics --profile nope", "no such configuration file"),
        ("cluster --features --api-versions", "not allowed with"),
        ("offsets", "required"),
        ("offsets t:x", "names no partitions"),
        ("offsets t:0=99999999999999999999", "'99999999999999999999' is no offset: write a number from 0 to"),
        ("offsets t:0=9223372036854775808", "'9223372036854775808' is no offset"),
        ("offsets t:0=-1", "'-1' is no offset"),
        ("offsets t:0=", "'' is no offset"),
        ("offsets t:0-3=5", "T:P=N takes one partition, and '0-3' is none"),
        ("offsets t:2147483648=5", "T:P=N takes one partition, and '2147483648' is none"),
        ("offsets t:0=1 --at latest", "give one of them"),
        ("offsets t:0=1 t", "one kind of them"),
        ("offsets t --at yesterday", "'yesterday' is no time"),
        ("cat t -o somewhere", "-o 'somewhere'"),
        ("cat t -p x", "names no partitions"),
        ("cat t -c 0", "'0' is no number from 1 to 4611686018427387903"),
        ("cat t -c 99999999999999999999999999", "is no number from 1 to 4611686018427387903"),
        ("cat t -c 100000000000000000000", "is no number from 1 to 4611686018427387903"),
        ("cat t --width 99999999999999999999", "is no number from 1 to 4611686018427387903"),
        ("cat t --width -5", "is no number from 1 to 4611686018427387903"),
        ("cat t -f %q", "unknown token %q"),
        ("cat t -J --json", "two formats"),
        ("cat t -J -f %s", "two formats"),
        ("cat t --grep z", "--grep 'z'"),
        ("cat t --grep k:(", "is no regular expression"),
        ("cat t --value xml", "invalid choice"),
        ("tail t -o @now:@-1h", "the end is not after the start"),
        ("bench t --seconds 0", "is too short"),
        ("bench t --columns --value json", "deserializers do not see them"),
        ("bench t --peer aiokafka -X security.protocol=SSL", "without TLS and SASL only"),
        ("produce t -X linger.mss=1", "unknown option 'linger.mss'; did you mean linger_ms?"),
        ("produce t -X linger_ms=-1", "linger_ms=-1 must be at least 0"),
        ("produce t -X fetch_max_bytes=1", "option 'fetch_max_bytes' is not one of a Producer,"),
        ("tail t -X linger.ms=1", "option 'linger.ms' is not one of a Consumer without a group,"),
        ("tail t -X group.id=g", "this command has no other client\nsay -g in its place"),
        ("cat t -X group.id=g", "is not one of a Client, and this command has no other client\nsay -g in its place"),
        ("cat t -X auto.offset.reset=latest", "this command has no other client\nsay -o in its place"),
        ("produce t -X retries=1", "delivery_timeout_ms is what ends retrying"),
        ("produce t -X transactional.id=x", "say that, too"),
        ("produce t --transaction --acks 1", "transactional_id needs enable_idempotence=True"),
        ("produce t --json --null", "--json and --null can't be used together"),
        ("produce t --json -K :", "--json and --key-delimiter can't be used together"),
        ("produce t --json --file x", "--json and --file can't be used together"),
        ("produce t --file x -K :", "--file and --key-delimiter can't be used together"),
        ("produce t -D=", "a delimiter can't be empty"),
        ("produce t -K \\q", "unknown escape \\q"),
        ("produce t -p 2147483648", "'2147483648' is no partition"),
        ("produce t -p -2", "'-2' is no partition"),
        ("produce t -z bzip2", "invalid choice"),
        ("produce t --acks 2", "invalid choice"),
        ("produce t -H \udcff=1", "a header's name must be UTF-8 text"),
        ("produce t -k x --key int32", "-k: the key is no whole number of 32 bits: 'x'"),
        ("perf t --percentiles 101", "write numbers up to 100"),
        ("fake --topic events:x", "write NAME or NAME:PARTITIONS"),
        ("fake --topic a.b --topic a_b", "'a_b' collides with 'a.b'"),
        ("fake --port 70000", "is no number from 0 to 65535"),
        ("fake --as-version 0.1", "there are 2.1"),
        ("completion tcsh", "invalid choice"),
    ],
)
async def test_wrong_arguments(words: str, sentence: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        refused(await aiokc(*words.split(), bootstrap=cluster.bootstrap), 2, sentence)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ("[::1", "write an IPv6 address in brackets, '[::1]:9092'"),
        ("[::1]9092", "write an IPv6 address in brackets, '[::1]:9092'"),
        ("host name:9092", "'host name:9092': no host has such a name"),
        ("\udcff:9092", "no host has such a name"),  # the byte 0xff of a command line
        ("[::1\t]:9092", "no host has such a name"),
    ],
)
async def test_wrong_servers(server: str, sentence: str) -> None:
    refused(await aiokc("topics", "-b", server, "--timeout", "100ms"), 2, sentence)


@pytest.mark.parametrize(
    "words", ["topics show", "cat", "tail", "bench", "groups show", "lag", "cat t -g", "groups kick --member m"]
)
async def test_a_name_that_is_no_text(words: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        result = await aiokc(*words.split(), "\udcff\udcff", bootstrap=cluster.bootstrap)  # bytes of a command line
        refused(result, 2, "must be UTF-8 text")


@pytest.mark.parametrize(
    "words",
    [
        *("{}", "topics --{}", "topics a {}", "topics --timeout {}", "topics --color {}", "topics -b {}:x"),
        *("topics -X {}", "topics -X {}=1", "topics -X fetch_max_bytes={}", "offsets t:{}", "offsets t:0={}", "cat {}"),
        *("cat t -o {}", "cat t -p {}", "cat t -c {}", "cat t -f %{{{}", "cat t --grep {}", "cat t --value={}"),
        *("lag --watch 1{}", "lag --fail-above {}", "groups show {}", "groups --state {}", "reset-offsets g t --to {}"),
        *("fake --port {}", "fake --topic t:{}", "bench {}", "perf t --percentiles {}"),
        *("produce t -p {}", "produce t -k {} --key hex", "produce t -D \\q{}", "produce {}", "produce t --file {}"),
    ],
)
async def test_long_arguments_are_cut(words: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        result = await aiokc(*words.format("x" * 5000).split(), bootstrap=cluster.bootstrap)
    assert result.code in (1, 2)
    assert "x" * 50 in result.err
    assert "x" * 101 not in result.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_has_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("40", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        text = parser_of(name).format_help()
        assert f"  aiokc {name}" in text.partition("examples:")[2]
        ordinary = [line for line in text.partition("examples:")[0].splitlines() if not line.startswith("usage")]
        assert [line for line in ordinary if len(line) > max(int(columns), 44)] == []


def test_help_of_all_commands() -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        system = system_of()
        assert main(words, system) == 0
        assert isinstance(system.stdout, Stream)
        assert all(name in system.stdout.text for name in COMMANDS)
    system = system_of()
    assert main(["help", "cat"], system) == 0
    assert isinstance(system.stdout, Stream)
    assert system.stdout.text == parser_of("cat").format_help()
    system = system_of()
    assert main(["--version"], system) == 0
    assert isinstance(system.stdout, Stream)
    assert system.stdout.text.startswith("aiokc ")


def test_options_may_stand_before_the_command() -> None:
    system = system_of()
    assert main(["-b", "h:1", "--json", "config", "show"], system) == 0
    assert isinstance(system.stdout, Stream)
    assert '{"option":"bootstrap_servers","value":"h:1","origin":"--bootstrap-servers"}' in system.stdout.text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "aiokc: not enough memory: lower fetch_buffer_bytes"),
        (RuntimeError("can't start new thread"), "aiokc: the system has no thread to spare: can't start new thread"),
    ],
)
def test_what_the_system_lacks_is_no_defect(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiokc.cli.commands.local.config_show as command

    async def broken(context: object) -> int:
        raise error

    monkeypatch.setattr(command, "run", broken)
    system = system_of()
    assert main(["config", "show"], system) == 1
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text.startswith(told)
    assert "defect" not in system.stderr.text


async def test_a_command_without_a_thread_for_a_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(Problem, match="no thread to spare") as got:
        await in_daemon_thread(bytes)
    assert (got.value.exit_code, "ulimit -u" in got.value.hint) == (1, True)


def test_a_defect_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiokc.cli.commands.local.config_show as command

    async def broken(context: object) -> int:
        logging.getLogger("aiokc").info("a broker says \u061c\x9b2J\nand more")
        raise ZeroDivisionError("division by zero\x1b[2J")

    monkeypatch.setattr(command, "run", broken)
    system = system_of()
    assert main(["config", "show"], system) == 1
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text.startswith(
        "aiokc: ZeroDivisionError: division by zero\\x1b[2J (this is a defect of aiokc"
    )
    assert main(["config", "show", "-v"], system) == 1
    assert "\nTraceback" in system.stderr.text
    assert "a broker says \\u061c\\x9b2J\nand more\n" in system.stderr.text
    assert system.stderr.text.translate({ord("\n"): ""}).isprintable()


def test_a_hint_moves_no_cursor() -> None:
    system = system_of()
    assert report(Problem("this is wrong", "do \x1b[2J"), system) == 1
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text == "aiokc: this is wrong\ndo \\x1b[2J\n"


def test_every_exit_code_has_a_meaning() -> None:
    assert sorted(MEANINGS) == [0, 1, 2, 3, 4, 5, 129, 130, 143]


@pytest.mark.parametrize("words", [["--help"], ["config", "show"], ["completion", "fish"]])
def test_a_full_disk(words: list[str]) -> None:
    system = system_of()
    with open("/dev/full", "w") as full:
        system.stdout = full
        assert main(words, system) == 1
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text == "aiokc: [Errno 28] No space left on device\n"
