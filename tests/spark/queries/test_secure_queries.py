"""Queries over TLS and SASL read what Spark's own source reads with the same options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from aiokc.testing import Certificates, Cluster, IdP, TokenRules
from aiokc.testing.kafka import SecureKafka
from tests.producing import Message, produce

from .listeners import STORE_PASSWORD, jaas, over_tls, truststore, with_password

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

BOTH = ("kafka", "aiokc")
RECORDS = 300
CANARY = "canary-7f3a"
_OIDC = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def topic(secure_kafka: SecureKafka, topic_name: str) -> str:
    """A topic of three partitions with RECORDS records."""
    secure_kafka.create_topic(topic_name, partitions=3)
    messages = [Message(b"value %d" % n, b"key", partition=n % 3) for n in range(RECORDS)]
    produce(secure_kafka.bootstrap, topic_name, messages, codec="lz4")
    return topic_name


def batch(spark: SparkSession, source: str, options: Mapping[str, str]) -> list[Row]:
    rows = spark.read.format(source).options(**options).load().collect()
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def stream(spark: SparkSession, source: str, options: Mapping[str, str], folder: Path) -> list[Row]:
    found: list[Row] = []
    given = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    rows = spark.readStream.format(source).options(**given).load()
    writer = rows.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query = writer.option("checkpointLocation", str(folder / source)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        assert len([one for one in query.recentProgress if one.numInputRows]) == 2
    finally:
        query.stop()
    return sorted(found, key=lambda row: (row.partition, row.offset))


def stream_on_every_spark(spark: SparkSession, options: Mapping[str, str], folder: Path) -> list[Row]:
    """Do as ``stream`` with aiokc. Before 4.2, Spark knows neither a limit nor an end of a stream in Python."""
    rows = spark.readStream.format("aiokc").options(**options, startingOffsets="earliest").load()
    name = f"rows_{folder.name.replace('-', '_')}"
    query = (
        rows.writeStream.format("memory").queryName(name).option("checkpointLocation", str(folder / "every")).start()
    )
    try:
        query.processAllAvailable()
        return spark.table(name).collect()
    finally:
        query.stop()


def both_read_all(spark: SparkSession, options: Mapping[str, str]) -> None:
    expected, found = (batch(spark, source, options) for source in BOTH)
    assert found == expected
    assert len(found) == RECORDS


@pytest.mark.every_spark(since="4.2")
def test_a_stream_over_sasl_ssl(spark: SparkSession, secure_kafka: SecureKafka, topic: str, tmp_path: Path) -> None:
    options = with_password(secure_kafka, "SCRAM-SHA-512", topic)

    expected, found = (stream(spark, source, options, tmp_path) for source in BOTH)

    assert found == expected
    assert len(found) == RECORDS


@pytest.mark.every_spark(since="4.2")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_javas_truststores(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, tmp_path: Path, kind: str
) -> None:
    store = {
        "kafka.ssl.truststore.location": str(truststore(kind, secure_kafka.certificates.ca, tmp_path)),
        "kafka.ssl.truststore.type": kind,
        "kafka.ssl.truststore.password": STORE_PASSWORD,
    }

    both_read_all(spark, {**over_tls(secure_kafka, "TLS", topic), **store})


@pytest.mark.long
@pytest.mark.every_spark(since="4.2")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_batch_by_a_password(spark: SparkSession, secure_kafka: SecureKafka, topic: str, mechanism: str) -> None:
    both_read_all(spark, with_password(secure_kafka, mechanism, topic))


@pytest.mark.long
@pytest.mark.every_spark(since="4.2")
def test_a_batch_by_a_token_in_a_file(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(secure_kafka.tokens.signed("alice"))
    url = f"file://{file}"
    assert spark.sparkContext._jvm is not None
    spark.sparkContext._jvm.java.lang.System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url)

    both_read_all(
        spark,
        {
            **over_tls(secure_kafka, "OIDC", topic),
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": url,
            "kafka.sasl.login.callback.handler.class": f"{_OIDC}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.jaas.config": f"{_OIDC}.OAuthBearerLoginModule required;",
        },
    )


@pytest.mark.long
@pytest.mark.every_spark(since="4.2")
@pytest.mark.parametrize("inline", [False, True])
def test_a_batch_by_a_client_certificate(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, inline: bool
) -> None:
    pem = secure_kafka.certificates.client
    key, mark, chain = pem.read_text().partition("-----BEGIN CERTIFICATE-----")
    given = (
        {"kafka.ssl.keystore.key": key, "kafka.ssl.keystore.certificate.chain": mark + chain}
        if inline
        else {"kafka.ssl.keystore.location": str(pem)}
    )

    both_read_all(spark, {**over_tls(secure_kafka, "MTLS", topic), "kafka.ssl.keystore.type": "PEM", **given})


@pytest.mark.long
@pytest.mark.every_spark
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_stream_by_tokens_of_an_openid_provider(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    """Driver and workers ask the provider themselves, which is trusted by the option for the brokers' authority."""
    certificates, ca = Certificates(), tmp_path / "ca.pem"
    ca.write_text(certificates.ca_pem)
    with IdP({"billing": CANARY}, tls=certificates if scheme == "https" else None) as idp:
        rules = TokenRules(idp=idp, audience="kafka")
        cluster = Cluster(topics={"events": 3}, tls=certificates, mechanisms=["OAUTHBEARER"], tokens=rules)
        with cluster.in_thread():
            for number in range(RECORDS):
                cluster.append("events", b"value %d" % number, partition=number % 3)
            options = {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": str(ca),
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauthbearer.token.endpoint.url": idp.token_url,
                "kafka.sasl.login.callback.handler.class": f"{_OIDC}.OAuthBearerLoginCallbackHandler",
                "kafka.sasl.jaas.config": (
                    f'{_OIDC}.OAuthBearerLoginModule required clientId="billing" clientSecret="{CANARY}";'
                ),
                "subscribe": "events",
            }

            found = stream_on_every_spark(spark, options, tmp_path)

            assert sorted(int(bytes(row.value).split()[1]) for row in found) == list(range(RECORDS))
            assert idp.token_url.startswith(f"{scheme}:")
            assert len(idp.asked) >= 2, "the driver, and at least one worker"


@pytest.mark.every_spark
def test_secrets_in_files_that_spark_sends(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, tmp_path: Path
) -> None:
    """As with ``--files``: driver and executors find the files by their names alone."""
    file, ca = tmp_path / f"{topic}.jaas", tmp_path / f"{topic}.pem"
    file.write_text(jaas("SCRAM-SHA-256", secure_kafka.scram_passwords["alice"]))
    ca.write_bytes(secure_kafka.certificates.ca.read_bytes())
    for each in (file, ca):
        assert not Path(each.name).exists()
        spark.sparkContext.addFile(str(each))
    options = {
        **with_password(secure_kafka, "SCRAM-SHA-256", topic),
        "kafka.sasl.jaas.config": f"file:{file.name}",
        "kafka.ssl.truststore.location": ca.name,
    }

    assert len(batch(spark, "aiokc", options)) == RECORDS
    assert len(stream_on_every_spark(spark, options, tmp_path)) == RECORDS


@pytest.mark.every_spark
def test_a_wrong_password_is_named_and_not_shown(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, tmp_path: Path
) -> None:
    options = with_password(secure_kafka, "SCRAM-SHA-512", topic, password=CANARY)

    rows = spark.read.format("aiokc").options(**options).load()
    with pytest.raises(PySparkException, match="AuthenticationFailed") as of_batch:
        rows.collect()
    with pytest.raises(PySparkException, match="AuthenticationFailed") as of_stream:
        stream_on_every_spark(spark, options, tmp_path)

    for caught in (of_batch, of_stream):
        assert "'alice' (SCRAM-SHA-512)" in str(caught.value)
        assert CANARY not in str(caught.value) + repr(caught.value)
    assert CANARY not in str(rows._jdf.queryExecution().toString())
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert written
    assert not [content for content in written if CANARY.encode() in content]
