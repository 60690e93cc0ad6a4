"""Files are found and read on the machine that connects, when it connects; errors name the machine, and no content."""

from __future__ import annotations

import asyncio
import errno
import pickle
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pyspark import SparkFiles

from aiokc import Client, ClientConfig, Secret, TopicPartition
from aiokc.errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConfigError,
    KafkaError,
    LogTruncated,
    MalformedResponse,
    OffsetOutOfRange,
    RequestTimedOut,
)
from aiokc.net.tls.our_side import OurSide
from aiokc.net.tls.tls_errors import tls_failure
from aiokc.testing import Certificates, Cluster, Listener
from aiokc.testing.kafka import SecureKafka
from spark_source import AiokcDataSource
from spark_source.cluster.driver import DriverCluster
from spark_source.options.client_options import in_words_of_a_query
from spark_source.options.security_options import SecurityTexts
from spark_source.options.source_options import SourceOptions, parse_options
from spark_source.planning.task_plan import OffsetRange
from spark_source.runtimes import _runtimes
from spark_source.schema import kafka_schema
from spark_source.secured import connected, local_file, secured
from spark_source.worker import read_task
from tests.producing import produce

from .queries.listeners import with_password

EVENTS = TopicPartition("events", 0)
JAAS = "kafka.sasl.jaas.config"
GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "events",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
}
ALICE = 'ScramLoginModule required username="alice" password="canary";'


@pytest.fixture
def spark_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files that Spark has sent, as a worker knows it; the working directory is another one."""
    folder, elsewhere = tmp_path / "userFiles-1f0c", tmp_path / "work"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(folder))
    return folder


def test_a_relative_path_is_looked_for_in_both_folders(spark_files: Path) -> None:
    (spark_files / "ca.pem").write_text("sent")
    assert local_file("o", "ca.pem").read_text() == "sent"

    Path("ca.pem").write_text("localised by YARN")
    assert local_file("o", "ca.pem").read_text() == "localised by YARN"
    assert local_file("o", str(spark_files / "ca.pem")).read_text() == "sent"
    assert local_file("o", str(spark_files)) == spark_files


def test_a_folder_of_the_job_is_inside_of_that_of_the_application(
    spark_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark 4.3 plans streams in such a folder: what addFile() sent is one folder above."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(spark_files / "streaming_job"))
    (spark_files / "ca.pem").write_text("sent")
    assert local_file("o", "ca.pem").read_text() == "sent"

    (spark_files / "streaming_job").mkdir()
    (spark_files / "streaming_job/ca.pem").write_text("sent with the job")
    assert local_file("o", "ca.pem").read_text() == "sent with the job"
    (spark_files.parent / "other.pem").write_text("beside all of them")
    monkeypatch.setattr(SparkFiles, "_root_directory", str(spark_files))
    with pytest.raises(ConfigError, match=r"there is no 'other.pem'"):
        local_file("o", "other.pem")


@pytest.mark.parametrize(
    "text", [f"-----BEGIN PRIVATE KEY-----{'canary' * 9}", f"BQI{'canary' * 20}", f"/eyJ{'canary' * 20}", ALICE]
)
def test_what_a_file_holds_is_not_shown_where_its_path_is_due(text: str) -> None:
    """The path of a keytab may stand in a file with a JAAS text, for instance."""
    with pytest.raises(ConfigError, match=r"^option 'o' must be the path of a file, not what is in it$"):
        local_file("o", text)


@pytest.mark.parametrize("before", ["file:", "file:/"])
def test_a_jaas_text_behind_file_is_not_shown(before: str) -> None:
    options = parse_options({**GIVEN, JAAS: before + ALICE})

    with pytest.raises(ConfigError, match=f"^option '{JAAS}' must be the path of a file, not what is in it$"):
        secured(options.client, options.security)


def test_a_path_that_cannot_be_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system refuses some: one that is too long, or below a folder that others may not search."""

    def refuse(path: Path) -> bool:
        raise OSError(errno.ENAMETOOLONG, "File name too long", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ConfigError, match=r"^option 'o' must be the path of a file: .*: File name too long$") as raised:
        local_file("o", "/canary")

    assert "canary" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_process_that_spark_did_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", False)
    monkeypatch.setattr(SparkFiles, "_sc", None)

    with pytest.raises(ConfigError, match=r"option 'o': there is no 'ca.pem' on "):
        local_file("o", "ca.pem")


def test_a_file_that_is_not_there(spark_files: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        local_file("kafka.ssl.truststore.location", "ssl_key_password/ca.pem")

    said = str(caught.value)
    assert said.startswith("option 'kafka.ssl.truststore.location': there is no 'ssl_key_password/ca.pem' and no ")
    assert str(spark_files / "ssl_key_password/ca.pem") in said
    assert f" on {socket.gethostname()}. " in said
    assert "--files ssl_key_password/ca.pem" in said
    assert "'ca.pem': it is then found among SparkFiles" in said


def test_options_and_readers_touch_no_file() -> None:
    given = {
        **GIVEN,
        JAAS: "file:/nowhere/jaas.conf",
        "kafka.ssl.truststore.location": "/nowhere/ca.pem",
        "kafka.ssl.keystore.key": "file:/nowhere/key.pem",
        "kafka.ssl.keystore.certificate.chain": "file:/nowhere/chain.pem",
    }
    source = AiokcDataSource(given)
    batch, stream = source.reader(kafka_schema(include_headers=False)), source.streamReader(source.schema())

    for reader in (batch, pickle.loads(pickle.dumps(batch))):
        with pytest.raises(ConfigError, match=r"there is no '/nowhere/.*' on "):
            reader.partitions()
    stream = pickle.loads(pickle.dumps(stream))
    stream.initialOffset()  # keeps what it raises: a batch that is repeated needs no start
    with pytest.raises(ConfigError, match=r"there is no '/nowhere/.*' on "):
        stream.latestOffset({}, None)
    stream.stop()


def test_a_task_on_a_machine_without_the_file() -> None:
    options = parse_options({**GIVEN, JAAS: "file:/nowhere/jaas.conf"})

    with pytest.raises(ConfigError, match=rf"option '{JAAS}': there is no '/nowhere/jaas.conf' on "):
        list(read_task(options, ("value",), (OffsetRange(EVENTS, 0, 1),)))

    assert not _runtimes


def test_secrets_of_options_are_in_the_config_of_this_process_only(tmp_path: Path) -> None:
    options = parse_options({**GIVEN, JAAS: ALICE})

    config = secured(options.client, options.security)

    assert (config.sasl_plain_username, config.sasl_plain_password) == ("alice", Secret("canary"))
    assert options.client.sasl_plain_password is None
    assert b"canary" not in pickle.dumps(options.client)


async def test_a_password_that_is_exchanged_in_the_file_needs_no_restart(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(ALICE.replace(";", " tokenauth=true;"))
    options = parse_options({**GIVEN, JAAS: f"file:{file}"})

    config = secured(options.client, options.security)
    assert config.sasl_credentials_provider is not None
    before = await config.sasl_credentials_provider()
    file.write_text(ALICE.replace("canary", "the next one"))
    after = await config.sasl_credentials_provider()

    assert before == ("alice", "canary")
    assert after == ("alice", "the next one")
    assert (config.sasl_plain_username, config.sasl_plain_password) == (None, None)
    assert config.sasl_tokenauth


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"canary\xff", "is not text in UTF-8"),
        (b"canary" * 200_000, "has more than 1048576 bytes: is it the one?"),
        (b"ScramLoginModule required password=canary;", "ScramLoginModule needs username"),
        (b'ScramLoginModule required password="canary;', "line 1, column 36: this quote is not closed"),
    ],
)
def test_a_jaas_file_that_is_none(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_bytes(content)
    options = parse_options({**GIVEN, JAAS: f"file:{file}"})

    with pytest.raises(ConfigError) as caught:
        secured(options.client, options.security)

    assert said in str(caught.value)
    assert JAAS in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in str(error)
        error = error.__cause__


def test_a_jaas_file_that_is_a_folder(tmp_path: Path) -> None:
    options = parse_options({**GIVEN, JAAS: f"file:{tmp_path}"})

    with pytest.raises(ConfigError, match=rf"option '{JAAS}': can't read '.*': Is a directory"):
        secured(options.client, options.security)


async def test_errors_of_the_client_have_javas_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(self: Client, *, timeout_ms: int | None = None) -> None:
        raise ConfigError("ssl_truststore_location: no certificate in /srv/ssl_key_password/x; see ssl_key_password.")

    monkeypatch.setattr(Client, "start", start)
    options = parse_options({**GIVEN, JAAS: ALICE})

    with pytest.raises(ConfigError) as caught:
        await connected(options.client, options.security)

    assert str(caught.value) == (
        "kafka.ssl.truststore.location: no certificate in /srv/ssl_key_password/x; see kafka.ssl.key.password."
    )


async def test_files_are_read_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []

    def look(option: str, path: str) -> Path:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        raise ConfigError("looked")

    monkeypatch.setattr("spark_source.secured.local_file", look)
    options = parse_options({**GIVEN, JAAS: f"file:{tmp_path / 'jaas.conf'}"})

    with pytest.raises(ConfigError, match="looked"):
        await connected(options.client, options.security)

    assert loops == [False]


@pytest.mark.kafka
def test_all_tasks_of_a_worker_share_one_login(
    secure_kafka: SecureKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure_kafka.create_topic(topic_name)
    produce(secure_kafka.bootstrap, topic_name, [b"x"] * 4)
    options = parse_options(with_password(secure_kafka, "SCRAM-SHA-512", topic_name))
    made: list[ClientConfig] = []

    def count(client: ClientConfig, security: SecurityTexts) -> ClientConfig:
        made.append(secured(client, security))
        return made[-1]

    monkeypatch.setattr("spark_source.secured.secured", count)
    try:
        # A reader is pickled for each task anew.
        for start in (0, 2):
            given = pickle.loads(pickle.dumps(options))
            batches = list(
                read_task(given, ("value",), (OffsetRange(TopicPartition(topic_name, 0), start, start + 2),))
            )
            assert sum(batch.num_rows for batch in batches) == 2
    finally:
        for key in list(_runtimes):
            _runtimes.pop(key).close()

    assert len(made) == 1


async def connect_alone(options: SourceOptions) -> None:
    await connected(options.client, options.security, timeout_ms=60_000)


async def ask_in_the_driver(options: SourceOptions) -> None:
    def ask() -> None:
        with DriverCluster(options.client, security=options.security) as cluster:
            cluster.topics(["events"])

    await asyncio.to_thread(ask)


async def read_in_a_task(options: SourceOptions) -> None:
    task = (OffsetRange(EVENTS, 0, 1),)
    await asyncio.to_thread(lambda: list(read_task(options, ("value",), task)))


@pytest.mark.parametrize("use", [connect_alone, ask_in_the_driver, read_in_a_task])
async def test_a_refused_certificate_is_told_in_words_of_a_query(
    use: Callable[[SourceOptions], Awaitable[None]],
) -> None:
    certificates = Certificates()
    listeners = {"GOOD": Listener("SSL"), "BAD": Listener("SSL", certificate=certificates.issue("kafka.example"))}
    async with Cluster(tls=certificates, topics={"events": 1}, listeners=listeners) as cluster:
        given = {"subscribe": "events", "kafka.security.protocol": "SSL"}
        for listener, trusted, advice in (
            ("GOOD", {}, "signed it as kafka.ssl.truststore.location"),
            ("BAD", {"kafka.ssl.truststore.certificates": certificates.ca_pem}, "let DNS or /etc/hosts map"),
        ):
            where = {"kafka.bootstrap.servers": cluster.bootstrap_of(listener)}
            with pytest.raises(CertificateRefused) as refused:
                await use(parse_options({**given, **where, **trusted}))
            assert advice in str(refused.value)
            assert not re.search(r"ssl_truststore|option resolve", str(refused.value))


def error_of(*, verify_code: int = 0, reason: str = "") -> KafkaError:
    """Return what the client says where OpenSSL has raised this."""
    error = ssl.SSLCertVerificationError("refused") if verify_code else ssl.SSLError("refused")
    error.reason = reason
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_code = verify_code
    side = OurSide(trusts="t", certificate=None, valid=None, versions="v")
    found = tls_failure(error, "broker 1", "host", side)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (error_of(verify_code=62), "keep the broker's name and let DNS or /etc/hosts map it to another address"),
        (error_of(verify_code=85), "as kafka.ssl.truststore.location, where that is not checked"),
        (error_of(reason="SSLV3_ALERT_HANDSHAKE_FAILURE"), "(give kafka.ssl.keystore.location), or both sides"),
        (error_of(reason="TLSV13_ALERT_CERTIFICATE_REQUIRED"), "give kafka.ssl.keystore.location, or another"),
        (error_of(reason="WRONG_VERSION_NUMBER"), "and at kafka.security.protocol"),
        (
            AuthenticationFailed("needs sasl_mechanism", mechanism="PLAIN", code=58, retriable=True),
            "needs kafka.sasl.m",
        ),
        (OffsetOutOfRange({EVENTS: 7}), "7: deleted by retention, or never written; if Spark's other attempts"),
        (
            LogTruncated({EVENTS: 7}, {EVENTS: 5}),
            "not in it any more; if Spark's other attempts at the task fail, too, run the query again, or choose where "
            "it starts by startingOffsets (a stream: with a new checkpoint)",
        ),
        (
            MalformedResponse("an answer of 9 bytes, and max_response_bytes is 8: raise it"),
            "and kafka.max.response.bytes is 8: raise it",
        ),
        (RequestTimedOut("no answer within request_timeout_ms=5"), "within kafka.request.timeout.ms=5"),
    ],
)
def test_errors_are_told_in_words_of_a_query(error: KafkaError, says: str) -> None:
    with pytest.raises(type(error)) as raised, in_words_of_a_query():
        raise error
    again = raised.value
    assert says in str(again)
    assert not re.search(r"\b(ssl|sasl|security)_|ssl_context|VERIFY_X509|option resolve|seek|_reset", str(again))
    assert (type(again), vars(again), again.retriable) == (type(error), vars(error), error.retriable)
    assert again.__cause__ is error.__cause__


def test_a_config_error_with_the_name_of_a_file_stays_as_it_is() -> None:
    with pytest.raises(ConfigError, match=r"^there is no 'ssl_key_password'$"), in_words_of_a_query():
        raise ConfigError("there is no 'ssl_key_password'")
