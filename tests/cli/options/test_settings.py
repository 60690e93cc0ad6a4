"""The options of clients: their spellings, their places and which of them wins, and where secrets come from."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokc import Secret
from aiokc.cli.main import main
from aiokc.cli.options import secrets
from aiokc.cli.options.settings import read_settings
from aiokc.cli.options.spelling import FIELDS
from aiokc.cli.parser import parse
from aiokc.cli.problems import UsageProblem
from aiokc.config.written.other_names import OTHER_NAMES
from aiokc.errors import ConfigError
from tests.cli.running import Stream, aiokc, system_of


def settings_of(*words: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    _, args = parse(["doctor", *words])
    settings = read_settings(args, system_of(environ=environ))
    return {name: setting.value for name, setting in settings.values.items()}


def no_home() -> Path:
    """Path.home() for a user whom the password database does not have."""
    raise RuntimeError("Could not determine home directory.")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / ".config" / "aiokc" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(
        """
        [profile.default]
        bootstrap_servers = "home:9092"
        "fetch.max.wait.ms" = 100
        client_rack = "a"

        [profile.staging]
        bootstrap_servers = ["one:9092", "two:9092"]
        sasl_mechanism = "PLAIN"
        security_protocol = "SASL_SSL"
        sasl_plain_username = "me"
        sasl_plain_password = {env = "STAGING_PASSWORD"}
        """
    )
    return path


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("fetch_max_wait_ms=7", "fetch_max_wait_ms", 7),
        ("fetch.max.wait.ms=7", "fetch_max_wait_ms", 7),
        ("fetch.wait.max.ms=7", "fetch_max_wait_ms", 7),
        ("queued.max.messages.kbytes=65536", "fetch_buffer_bytes", 64 << 20),
        ("metadata.broker.list=h:1", "bootstrap_servers", "h:1"),
        ("security.protocol=ssl", "security_protocol", "SSL"),
        ("ssl.ca.location=/ca.pem", "ssl_truststore_location", "/ca.pem"),
        ("ssl.key.location=/key.pem", "ssl_keystore_key", Path("/key.pem")),
        ("ssl.endpoint.identification.algorithm=none", "ssl_endpoint_identification_algorithm", ""),
        ("check.crcs=false", "check_crcs", False),
        ("isolation.level=read_committed", "isolation_level", "read_committed"),
        ("sasl.oauthbearer.extensions=a=1,b=2", "sasl_oauthbearer_extensions", {"a": "1", "b": "2"}),
        ("partition.assignment.strategy=range,sticky", "partition_assignment_strategy", ["range", "sticky"]),
        ("sasl.password={env=WORD}", "sasl_plain_password", Secret("secret")),
    ],
)
def test_spellings_of_other_clients(option: str, name: str, value: object) -> None:
    assert settings_of("-X", option, environ={"WORD": "secret"})[name] == value


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("linger.ms=7", "linger_ms", 7),
        ("queue.buffering.max.ms=7", "linger_ms", 7),
        ("queue.buffering.max.kbytes=32768", "buffer_memory", 32 << 20),
        ("message.timeout.ms=700000", "delivery_timeout_ms", 700_000),
        ("compression.codec=lz4", "compression_type", "lz4"),
        ("enable.idempotence=false", "enable_idempotence", False),
        ("acks=all", "acks", "all"),
        ("request.required.acks=-1", "acks", -1),
        ("partitioner=consistent_random", "partitioner", "consistent_random"),
    ],
)
def test_options_of_producers(option: str, name: str, value: object) -> None:
    _, args = parse(["produce", "events", "-X", option])
    config = read_settings(args, system_of()).producer_config()
    assert getattr(config, name) == value
    assert type(getattr(config, name)) is type(value)


@pytest.mark.parametrize(
    ("words", "block", "delivery"),
    [
        ("--timeout 2s", 2_000, 2_005),
        ("--timeout 60s", 60_000, 60_000),
        ("--timeout 60s -X linger.ms=50000", 60_000, 80_000),
        ("-X max.block.ms=7 -X delivery.timeout.ms=50000", 7, 50_000),
    ],
)
def test_timeout_is_that_of_a_producer_too(words: str, block: int, delivery: int) -> None:
    _, args = parse(["produce", "events", *words.split()])
    config = read_settings(args, system_of()).producer_config()
    assert (config.max_block_ms, config.delivery_timeout_ms) == (block, delivery)


@pytest.mark.parametrize(
    ("words", "wait", "request_ms"),
    [
        ("--timeout 5s", None, 5_000),
        ("--timeout 5s", "100", 5_000),
        ("--timeout 5s", "5000", 5_001),
        ("--timeout 5s", "20000", 20_001),
        ("--timeout 30d", None, 30_000),
    ],
)
def test_a_short_timeout_lets_a_broker_hold_a_fetch_for_as_long_as_it_may(
    words: str, wait: str | None, request_ms: int
) -> None:
    _, args = parse(["topics", *words.split()])
    environ = {} if wait is None else {"AIOKC_FETCH_MAX_WAIT_MS": wait}
    assert read_settings(args, system_of(environ=environ)).client_config().request_timeout_ms == request_ms


@pytest.mark.parametrize(
    ("option", "request_ms"), [("client.id=me", 5_000), ("request.timeout.ms=7000", 7_000)], ids=["fitted", "given"]
)
@pytest.mark.parametrize("wait", ["100", "20000", "40000"])
def test_a_producer_with_a_short_timeout_waits_for_no_fetch_of_others(wait: str, option: str, request_ms: int) -> None:
    _, args = parse(["produce", "events", "--timeout", "5s", "-X", option])
    config = read_settings(args, system_of(environ={"AIOKC_FETCH_MAX_WAIT_MS": wait})).producer_config()
    assert (config.request_timeout_ms, config.delivery_timeout_ms) == (request_ms, request_ms + 5)


@pytest.mark.parametrize(
    ("words", "origin", "block", "delivery"),
    [
        ("", "the command's default", 30_000, 30_005),
        ("--timeout 60s", "as --timeout", 60_000, 60_000),
        ("-X max.block.ms=7 -X delivery.timeout.ms=50000", "-X", 7, 50_000),
    ],
)
async def test_config_show_has_a_producer_s_timeouts(words: str, origin: str, block: int, delivery: int) -> None:
    for shown in ([], ["--all"]):
        result = await aiokc("config", "show", "--json", *shown, *words.split())
        rows = {row["option"]: row for row in map(json.loads, result.out.splitlines())}
        for name, value in (("max_block_ms", block), ("delivery_timeout_ms", delivery)):
            assert rows[name]["value"] == str(value)
            assert rows[name]["origin"].startswith(origin)


@pytest.mark.parametrize("name", ["linger_ms", "request_timeout_ms"])
def test_a_timeout_of_the_wrong_type_is_refused(config: Path, name: str) -> None:
    config.write_text(f"[profile.default]\n{name} = [1]\n")
    _, args = parse(["produce", "events", "--config", str(config)])
    with pytest.raises(ConfigError, match=f"{name} must be int, not list"):
        read_settings(args, system_of()).producer_config()


def test_a_profile_may_have_options_of_both_kinds(config: Path) -> None:
    config.write_text("[profile.default]\nlinger_ms = 7\nfetch_max_wait_ms = 8\ngroup_id = 'billing'\n")
    environ = {"AIOKC_CONFIG": str(config), "AIOKC_ACKS": "all", "AIOKC_AUTO_OFFSET_RESET": "none"}
    for words in (["topics"], ["cat", "events"], ["bench", "events"], ["produce", "events"]):
        _, args = parse(words)
        settings = read_settings(args, system_of(environ=environ))
        assert settings.consumer_config().fetch_max_wait_ms == 8
        assert settings.producer_config().linger_ms == 7


async def test_config_show_has_options_of_both_kinds() -> None:
    result = await aiokc("config", "show", "-X", "linger.ms=7", "-X", "fetch.max.wait.ms=8", "--csv", "--all")
    lines = result.out.splitlines()
    assert {"linger_ms,7,-X linger.ms", "fetch_max_wait_ms,8,-X fetch.max.wait.ms"} <= set(lines)
    assert "acks,all,default" in lines


def test_other_names_lead_to_options_that_exist() -> None:
    assert set(OTHER_NAMES.values()) <= FIELDS.keys()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("fetch.wait.max.mss=1", "did you mean fetch_wait_max_ms?"),
        ("bootstrap_server=h", "did you mean bootstrap_servers?"),
        ("zzz=1", "unknown option 'zzz'"),
        ("sasl.jaas.config=x", "give sasl_plain_username"),
        ("resolve=x", "for Python only"),
        ("check_crcs=maybe", "must be true or false"),
        ("fetch_max_bytes=lots", "must be a whole number"),
        ("fetch_max_bytes", "must be KEY=VALUE"),
        ("sasl.password=hunter2", "seen by everybody"),
        ("sasl.password={hunter2", "seen by everybody"),
        ("sasl.password={evn=hunter2}", "seen by everybody"),
        ("ssl.keystore.key=-----BEGIN PRIVATE KEY-----\nhunter2", "or $AIOKC_SSL_KEYSTORE_KEY"),
        ("ssl.key.pem= -----BEGIN ENCRYPTED PRIVATE KEY-----\nhunter2", "seen by everybody"),
        ("ssl.certificate.pem=-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\nhunter2", "seen by"),
        ("sasl.password={env=MISSING}", "no variable MISSING"),
        ("sasl.password={file=/dev/null/none}", "Not a directory"),
        ('sasl.password={command=["false"]}', "ended with exit code 1"),
        ('sasl.password={command=["/nonexistent"]}', "can't be run"),
        ('sasl.password={command=["a\\u0000b"]}', "can't be run: embedded null byte"),
        ('sasl.password={command=["cat", "/dev/zero"]}', "the command cat wrote more than 1 MiB"),
        ('sasl.password={command=["printf", "\\\\377"]}', "wrote no text"),
        ("sasl.password={command=false}", "is a list of texts"),
        ("sasl.password={command=[]}", "is a list of texts"),
    ],
)
def test_wrong_options(option: str, message: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        settings_of("-X", option)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_flag_beats_an_option_beats_the_environment_beats_the_profile(config: Path) -> None:
    home = {"HOME": str(config.parents[2])}
    variables = {**home, "AIOKC_CLIENT_RACK": "b", "AIOKC_FETCH_MAX_WAIT_MS": "200"}
    assert settings_of(environ=home)["bootstrap_servers"] == "home:9092"
    assert settings_of(environ=variables)["client_rack"] == "b"
    found = settings_of("-X", "client.rack=c", "-b", "flag:9092", environ=variables)
    assert (found["bootstrap_servers"], found["client_rack"], found["fetch_max_wait_ms"]) == ("flag:9092", "c", 200)
    assert settings_of("--timeout", "5s", environ=home)["default_api_timeout_ms"] == 5_000


def test_variables_may_have_the_names_of_other_clients() -> None:
    variables = {"AIOKC_SASL_PASSWORD": "secret", "AIOKC_BROKERS": "h:1", "AIOKC_FETCH_WAIT_MAX_MS": "7"}
    found = settings_of(environ=variables)
    assert found["sasl_plain_password"] == Secret("secret")
    assert (found["bootstrap_servers"], found["fetch_max_wait_ms"]) == ("h:1", 7)


def test_of_two_variables_for_one_option_that_of_our_own_name_wins() -> None:
    both = [("AIOKC_BROKERS", "other:1"), ("AIOKC_BOOTSTRAP_SERVERS", "own:1")]
    for variables in (both, both[::-1]):
        assert settings_of(environ=dict(variables))["bootstrap_servers"] == "own:1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AIOKC_BOOTSTRAP_SERVER", "did you mean bootstrap_servers?"),
        ("AIOKC_RETRIES", "delivery_timeout_ms is what ends retrying"),
        ("AIOKC_RESOLVE", "for Python only"),
        ("AIOKC_ZZZ", "unknown option 'zzz'"),
    ],
)
async def test_a_variable_that_is_no_option_is_warned_of(name: str, message: str) -> None:
    result = await aiokc("config", "show", environ={name: "hunter2"})
    assert result.code == 0
    assert result.err.startswith(f"warning: ${name} gives no option: ")
    assert message in result.err
    assert "hunter2" not in result.err


async def test_variables_that_mean_something_else_are_not_warned_of() -> None:
    names = ["AIOKC_NATIVE", "AIOKC_CODEC_LIBRARIES", "AIOKC_KAFKA_HOME", "AIOKC_BOOTSTRAP"]
    names += ["AIOKC_SPARK", "AIOKC_CALLS", "AIOKC_SERVICE_HOST", "AIOKC_SERVICE_PORT", "AIOKC_SERVICE_PORT_HTTP"]
    names += ["AIOKC_PORT", "AIOKC_PORT_80_TCP", "AIOKC_PORT_80_TCP_ADDR", "AIOKC_WEB_SERVICE_HOST", "AIOKC_WEB_PORT"]
    result = await aiokc("config", "show", environ=dict.fromkeys(names, "1"))
    assert (result.code, result.err) == (0, "")


def test_the_working_directory_is_never_searched(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloned repository must not choose who gets a password."""
    for name in (".config/aiokc/config.toml", "config.toml", "aiokc.toml", ".aiokc.toml"):
        path = config.parent / "cloned" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('[profile.default]\nbootstrap_servers = "evil:9092"\n')
    monkeypatch.chdir(config.parent / "cloned")
    monkeypatch.setattr(Path, "home", no_home)
    for home in ("", ".", "/nonexistent"):
        for named in ("", ".", ".config"):
            assert "bootstrap_servers" not in settings_of(environ={"HOME": home, "XDG_CONFIG_HOME": named})


def test_a_profile_by_name(config: Path) -> None:
    variables = {"HOME": str(config.parents[2]), "STAGING_PASSWORD": "secret"}
    for chosen in (["--profile", "staging"], []):
        found = settings_of(*chosen, environ={**variables, **({} if chosen else {"AIOKC_PROFILE": "staging"})})
        assert found["bootstrap_servers"] == ["one:9092", "two:9092"]
        assert found["sasl_plain_password"] == Secret("secret")


CHOOSING = pytest.mark.parametrize(
    ("words", "environ"),
    [(["--profile", "staging"], {}), ([], {"AIOKC_PROFILE": "staging"})],
    ids=["--profile", "AIOKC_PROFILE"],
)


@CHOOSING
@pytest.mark.parametrize("named", ["", "relative"])
def test_without_home_a_profile_is_looked_for_in_the_home_directory_of_the_user(
    config: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], environ: dict[str, str], named: str
) -> None:
    """As systemd starts a service. XDG's specification says to ignore a relative XDG_CONFIG_HOME."""
    monkeypatch.setattr(Path, "home", lambda: config.parents[2])
    environ = {**environ, "HOME": "", "XDG_CONFIG_HOME": named, "STAGING_PASSWORD": "secret"}
    assert settings_of(*words, environ=environ)["bootstrap_servers"] == ["one:9092", "two:9092"]


@CHOOSING
def test_a_profile_is_refused_where_there_is_nowhere_to_look_for_it(
    monkeypatch: pytest.MonkeyPatch, words: list[str], environ: dict[str, str]
) -> None:
    """Else the command would go to another cluster, on localhost."""
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UsageProblem, match=r"no home directory, .* profile 'staging'"):
        settings_of(*words, environ={**environ, "HOME": ""})


def test_an_empty_variable_chooses_no_profile() -> None:
    assert "bootstrap_servers" not in settings_of(environ={"AIOKC_PROFILE": ""})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"has no \[profile.staging\]"),
        ("[profile.stagin]", r"did you mean stagin\?"),
        ("bootstrap_servers = 'x'", "options belong below"),
        ("[profile]\nstaging = 1", "options belong below"),
        ("[[[", "is no TOML"),
        ("[profile.staging]\nbootstrap_server = 'x'", "did you mean bootstrap_servers"),
        ("[profile.staging]\nfetch_max_bytes = 'x'", "must be a whole number"),
    ],
)
def test_wrong_configuration_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(UsageProblem, match=message) as caught:
        settings_of("--config", str(path), "--profile", "staging")
    assert str(path) in str(caught.value)


def test_a_size_in_kib_in_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for size in ("2048", "'2048'"):
        path.write_text(f"[profile.default]\n'queued.max.messages.kbytes' = {size}\nfetch_max_bytes = 2048\n")
        found = settings_of("--config", str(path))
        assert (found["fetch_buffer_bytes"], found["fetch_max_bytes"]) == (2 << 20, 2048)


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no such configuration file"):
        settings_of("--config", str(tmp_path / "none.toml"))
    with pytest.raises(UsageProblem, match="can't be read"):
        settings_of("--config", str(tmp_path))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(UsageProblem, match="no text in UTF-8"):
        settings_of("--config", str(tmp_path / "bytes.toml"))


def test_files_in_a_home_directory_that_is_not_there() -> None:
    path = "~nobody-has-this-name/file"
    with pytest.raises(ConfigError, match=r"^--config begins with '~', and there is no such home directory"):
        settings_of("--config", path)
    with pytest.raises(ConfigError, match=r"^\$AIOKC_CONFIG begins with '~'"):
        settings_of(environ={"AIOKC_CONFIG": path})
    with pytest.raises(UsageProblem, match=r"^the file of sasl\.password begins with '~'"):
        settings_of("-X", f"sasl.password={{file={path}}}")
    with pytest.raises(UsageProblem, match=r"^ssl\.ca\.location begins with '~'"):
        settings_of("-X", f"ssl.ca.location={path}")


def test_files_that_are_too_long(tmp_path: Path) -> None:
    path = tmp_path / "long"  # as long as what is read of /dev/zero
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageProblem, match="is longer than 1 MiB"):
        settings_of("--config", str(path))
    with pytest.raises(UsageProblem, match=r"sasl\.password: .* is longer than 1 MiB"):
        settings_of("-X", f"sasl.password={{file={path}}}")


def test_secrets_from_files_and_commands(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("from a file\n")
    assert settings_of("-X", f"sasl.password={{file={path}}}")["sasl_plain_password"] == Secret("from a file")
    found = settings_of("-X", 'sasl.password={command=["echo", "from a command"]}')
    assert found["sasl_plain_password"] == Secret("from a command")


def test_a_command_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_COMMAND_SECONDS", 0.2)
    for words in ('["sleep", "60"]', '["sh", "-c", "exec >&-; exec sleep 60"]'):
        with pytest.raises(UsageProblem, match=r"took more than 0\.2 s"):
            settings_of("-X", f"sasl.password={{command={words}}}")


def test_a_child_of_a_command_that_keeps_the_pipe_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an agent does that the command starts: what the command itself wrote counts, however long that is."""
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    monkeypatch.setattr(secrets, "_COMMAND_SECONDS", 5)
    words = ["sh", "-c", 'printf "%070000d" 7; cat "$0" & :', str(go_on)]
    try:
        found = settings_of("-X", f"sasl.password={{command={json.dumps(words)}}}")
    finally:
        go_on.open("w").close()  # once the child has opened it, too; then the child ends
    assert found["sasl_plain_password"] == Secret("7".zfill(70_000))


@pytest.mark.parametrize(
    ("name", "value", "is_held"),
    [
        ("sasl_plain_password", "secret", True),
        ("sasl_plain_password", "{env=WORD}", False),
        ("ssl_keystore_key", "/key.pem", False),
        ("ssl_keystore_key", "-----BEGIN PRIVATE KEY-----", True),
        ("ssl_keystore_certificate_chain", "-----BEGIN CERTIFICATE-----", False),
        ("ssl_truststore_location", "/ca.pem", False),
    ],
)
def test_a_secret_that_others_can_read_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_held: bool
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[profile.default]\nsasl_plain_username = 'me'\n{name} = {value!r}\n")
    _, args = parse(["topics", "--config", str(path)])
    system = system_of(environ={"WORD": "secret"})
    path.chmod(0o644)
    warnings = read_settings(args, system).warnings
    assert [f"holds {name} and" in warning and "chmod 600" in warning for warning in warnings] == [True] * is_held
    with monkeypatch.context() as on_windows:  # where every file has this mode
        on_windows.setattr("aiokc.cli.options.profiles.os", SimpleNamespace(name="nt"))
        assert read_settings(args, system).warnings == []
    path.chmod(0o600)
    assert read_settings(args, system).warnings == []


def test_a_missing_password_is_asked_for() -> None:
    _, args = parse(["topics", "-X", "sasl.username=me"])
    system, prompts = system_of(), []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "typed"

    system.ask_secret = ask  # type: ignore[method-assign]
    assert read_settings(args, system).values["sasl_plain_password"] == (Secret("typed"), "typed in")
    assert prompts == ["SASL password: "]
    assert "sasl_plain_password" not in read_settings(args, system_of()).values  # no terminal, no question


def test_ctrl_d_in_place_of_a_password_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_of_input(_prompt: str, _stream: object) -> str:
        raise EOFError

    monkeypatch.setattr("getpass.getpass", end_of_input)
    system = system_of(columns=80)
    system.stdin = Stream(is_terminal=True)
    assert main(["topics", "-X", "sasl.username=me"], system) == 2
    assert isinstance(system.stderr, Stream)
    said = "\naiokc: no password was given\ntype it, or give it in $AIOKC_SASL_PLAIN_PASSWORD or in a profile\n"
    assert system.stderr.text == said


async def test_config_show_names_origins_and_no_secret(config: Path) -> None:
    variables = {"HOME": str(config.parents[2]), "STAGING_PASSWORD": "hunter2", "AIOKC_CLIENT_RACK": "b"}
    result = await aiokc("config", "show", "--profile", "staging", "--csv", "-X", "check.crcs=no", environ=variables)
    assert (result.code, result.err) == (0, "")
    rows = dict(line.split(",", 1) for line in result.out.splitlines())
    assert rows["sasl_plain_password"] == f'***,"{config}, [profile.staging] ($STAGING_PASSWORD)"'
    assert rows["client_rack"] == "b,$AIOKC_CLIENT_RACK"
    assert rows["check_crcs"] == "False,-X check.crcs"
    assert "hunter2" not in result.out


async def test_config_show_hides_what_the_config_itself_hides() -> None:
    variables = {
        "AIOKC_SASL_OAUTHBEARER_EXTENSIONS": "logicalCluster=lkc-1,proof=horse",
        "AIOKC_SECURITY_PROTOCOL": "SASL_SSL",
        "AIOKC_SASL_MECHANISM": "OAUTHBEARER",
        "AIOKC_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://idp.example/token",
        "AIOKC_SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID": "me",
        "AIOKC_SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET": "battery",
    }
    result = await aiokc("config", "show", "--csv", environ=variables)
    assert (result.code, result.err) == (0, "")
    assert "sasl_oauthbearer_extensions,***,$AIOKC_SASL_OAUTHBEARER_EXTENSIONS" in result.out.splitlines()
    assert "horse" not in result.out
    assert "sasl_oauthbearer_extensions,,default" in (await aiokc("config", "show", "--csv", "--all")).out.splitlines()


async def test_config_show_refuses_what_contradicts_itself() -> None:
    result = await aiokc("config", "show", "-X", "security.protocol=PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
    assert (result.code, result.out) == (2, "")
    assert "sasl_mechanism" in result.err


def test_no_option_is_a_password_flag() -> None:
    from aiokc.cli.commands.table import COMMANDS
    from aiokc.cli.parser import parser_of

    options = {option for name in COMMANDS for action in parser_of(name)._actions for option in action.option_strings}
    assert [option for option in options if "pass" in option or "secret" in option] == []
    assert isinstance(parse(["topics"])[1], Namespace)
