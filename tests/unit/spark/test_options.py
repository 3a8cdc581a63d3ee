"""Options of the format: what each becomes, and what is refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.producer import ProducerConfig
from streamlet.spark.options import (
    EARLIEST,
    LATEST,
    OPTIONS,
    REFUSED,
    SourceOptions,
    Use,
    client_settings,
    duration_s,
    read_options,
    write_options,
)

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
BASE = {**SERVERS, "subscribe": "t"}
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}


def read(use: Use = Use.BATCH_READ, **given: str) -> SourceOptions:
    return read_options({**BASE, **given}, use)


def refusal(use: Use, given: dict[str, str]) -> str:
    with pytest.raises(BadInput) as caught:
        (read_options if use in (Use.BATCH_READ, Use.STREAM_READ) else write_options)(given, use)
    return str(caught.value)


VALUES = {
    "assign": '{"t":[0]}',
    "subscribePattern": "t.*",
    "startingTimestamp": "1",
    "endingTimestamp": "1",
    "startingOffsetsByTimestamp": '{"t":{"0":1}}',
    "endingOffsetsByTimestamp": '{"t":{"0":1}}',
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "maxTriggerDelay": "1m",
    "groupIdPrefix": "p",
    "kafka.group.id": "g",
    "topic": "t",
    "subscribe": "t",
}


@pytest.mark.parametrize("use", Use)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_taken_where_its_row_says_and_refused_by_name_elsewhere(name: str, use: Use) -> None:
    reads = use in (Use.BATCH_READ, Use.STREAM_READ)
    given = {**SERVERS, name: VALUES.get(name, "5")}
    if reads and name not in ("assign", "subscribe", "subscribePattern"):
        given["subscribe"] = "t"
    if use in OPTIONS[name]:
        (read_options if reads else write_options)(given, use)
    else:
        assert refusal(use, given).startswith(f"{name!r} is an option of ")


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_is_not_had_is_refused_by_name_with_what_to_do(name: str) -> None:
    for use in Use:
        assert refusal(use, {name.lower(): "x"}).startswith(f"{name!r} is not an option of 'streamlet-kafka': ")


def test_an_unknown_option_is_refused_with_its_nearest() -> None:
    assert "'startingOffset'" in (text := refusal(Use.BATCH_READ, {**BASE, "startingOffset": "earliest"}))
    assert "the nearest one is 'startingOffsets'" in text


def test_names_count_in_any_case_for_spark_hands_them_on_in_lower() -> None:
    assert not read_options(
        {"KAFKA.BOOTSTRAP.SERVERS": "h:1", "SUBSCRIBE": "t", "FAILONDATALOSS": "False"}, Use.BATCH_READ
    ).fail_on_data_loss


def test_exactly_one_option_names_the_topics() -> None:
    assert "none is given" in refusal(Use.BATCH_READ, SERVERS)
    assert "subscribe and subscribePattern are given" in refusal(Use.BATCH_READ, {**BASE, "subscribePattern": "t"})
    assert read(subscribe="a, b,a").topics.names == ("a", "b")
    assert read_options({**SERVERS, "assign": '{"a":[0,2]}'}, Use.BATCH_READ).topics.assigned == (("a", 0), ("a", 2))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("assign", '{"t":0}', "a list of"),
        ("assign", "t", "is not JSON"),
        ("subscribePattern", "(", "not a regular expression"),
        ("subscribePattern", " ", "is empty"),
        ("subscribe", " , ", "names no topic"),
    ],
)
def test_topics_that_cannot_be_read_are_refused(name: str, value: str, said: str) -> None:
    assert said in refusal(Use.BATCH_READ, {**SERVERS, name: value})


def test_blanks_around_a_topic_and_a_pattern_do_not_count() -> None:
    assert read_options({**SERVERS, "subscribePattern": " t.* "}, Use.BATCH_READ).topics.pattern == "t.*"
    assert write_options({**SERVERS, "topic": " t "}, Use.BATCH_WRITE).topic == "t"


def test_a_least_size_of_a_batch_above_its_largest_is_refused() -> None:
    text = refusal(Use.STREAM_READ, {**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"})
    assert text.startswith("minOffsetsPerTrigger = 9 is more than maxOffsetsPerTrigger = 5")


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest() -> None:
    assert read().start.everywhere == EARLIEST
    assert read().end.everywhere == LATEST
    assert read(Use.STREAM_READ).start.everywhere == LATEST


def test_a_time_for_all_goes_before_times_and_these_before_offsets() -> None:
    given = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert read(**given).start.partitions == {("t", 0): 5}
    start = read(**given, startingTimestamp="9").start
    assert (start.everywhere, start.by_time) == (9, True)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("startingOffsets", "latest", "would read nothing"),
        ("startingOffsets", '{"t":{"0":5,"1":-1}}', "would read nothing of partition 1 of topic 't'"),
        ("startingOffsets", "first", "write earliest or latest"),
        ("startingOffsets", '{"t":{"0":-3}}', "or -2 for the earliest"),
        ("startingOffsets", '{"t":{"x":1}}', "the partition's number"),
        ("startingOffsets", '{"t":5}', "a number for each partition"),
        ("startingOffsets", "[1]", "write earliest or latest"),
        ("endingOffsets", "earliest", "write latest"),
        ("endingOffsets", '{"t":{"0":-2}}', "or -1 for the latest"),
        ("startingTimestamp", "now", "a whole number"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "a whole number from 0"),
        ("startingOffsetsByTimestampStrategy", "none", "'error' or 'latest'"),
        ("failOnDataLoss", "yes", "true or false"),
        ("minPartitions", "0", "at least 1"),
        ("maxRecordsPerPartition", "x", "at least 1"),
        ("kafkaConsumer.pollTimeoutMs", "0", "at least 1"),
        ("kafka.fetch.min.bytes", "x", "a whole number"),
        ("kafka.no.such.setting", "x", "no.such.setting"),
        ("kafka.acks", "all", "setting of the Producer"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str, said: str) -> None:
    text = refusal(Use.BATCH_READ, {**BASE, name: value})
    assert said in text
    assert name.removeprefix("kafka.").replace(".", "_") in text.replace(".", "_")


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("90s", 90), ("1500", 1.5), ("2h", 7200), ("20ms", 0.02)])
def test_durations_are_read_as_spark_writes_them(text: str, seconds: float) -> None:
    assert duration_s(text, "maxTriggerDelay") == pytest.approx(seconds)


def test_a_duration_without_a_known_unit_is_refused() -> None:
    with pytest.raises(BadInput, match="maxTriggerDelay = '5 weeks'"):
        duration_s("5 weeks", "maxTriggerDelay")


def test_the_addresses_must_be_given() -> None:
    assert "kafka.bootstrap.servers is missing" in refusal(Use.BATCH_READ, {"subscribe": "t"})
    assert "kafka.bootstrap.servers is missing" in refusal(Use.BATCH_WRITE, {"topic": "t"})


def test_kafka_settings_get_our_names_and_types() -> None:
    options = read(
        **{"kafka.fetch.max.bytes": "1000", "kafka.check.crcs": "FALSE", "kafka.isolation.level": "read_committed"}
    )
    assert options.client["fetch_max_bytes"] == 1000
    assert options.client["check_crcs"] is False
    assert options.isolation_level == "read_committed"
    assert options.client["auto_offset_reset"] == "none"
    assert "fetch_max_bytes" not in options.admin
    assert options.admin["bootstrap_servers"] == "h:9092"
    written = write_options({**SERVERS, "kafka.acks": "1", "kafka.linger.ms": "5", "topic": "t"}, Use.BATCH_WRITE)
    assert (written.client["acks"], written.client["linger_ms"]) == (1, 5)


def test_javas_words_for_security_are_translated() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al" password="p w=\'1\'";'
    found = client_settings(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": "/me.pem",
            "kafka.ssl.key.password": "secret",
            "kafka.ssl.endpoint.identification.algorithm": "",
        },
        ConsumerConfig,
        "reading",
    )
    assert found["sasl_plain_username"] == "al"
    assert found["sasl_plain_password"] == "p w='1'"
    assert found["ssl_cafile"] == "/ca.pem"
    assert found["ssl_certfile"] == "/me.pem"
    assert found["ssl_password"] == "secret"
    assert found["ssl_check_hostname"] is False


def test_javas_words_for_client_credentials_are_translated_and_a_provider_is_refused() -> None:
    given = {
        **SERVERS,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "kafka.sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="counter" clientSecret="s3cret" scope="kafka";',
    }
    for kind in (ConsumerConfig, ProducerConfig):
        found = client_settings(given, kind, "reading")
        assert found["sasl_oauthbearer_client_credentials_client_id"] == "counter"
        assert found["sasl_oauthbearer_client_credentials_client_secret"] == "s3cret"
        assert found["sasl_oauthbearer_scope"] == "kafka"
    own = {**SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    assert "must be a function" in refusal(Use.BATCH_READ, {**BASE, **own, "kafka.sasl.oauth.token.provider": "x.y"})


def test_a_java_key_store_and_kerberos_are_refused_by_name() -> None:
    said = refusal(Use.BATCH_READ, {**BASE, "kafka.ssl.truststore.location": "/a.jks"})
    assert "kafka.ssl.truststore.location names a store of type JKS" in said
    assert "kafka.ssl.truststore.type = PEM" in said
    krb = {"kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"}
    assert "kafka.sasl.jaas.config cannot be used" in refusal(Use.BATCH_READ, {**BASE, **krb})


def test_a_password_stands_in_no_refusal_and_in_no_text_of_the_options() -> None:
    given = {**BASE, "kafka.sasl.jaas.config": 'x.PlainLoginModule required user="a" password="s3cret";'}
    assert "s3cret" not in refusal(Use.BATCH_READ, given)
    secret = {**SASL, "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="a" password="s3cret";'}
    assert "s3cret" not in repr(read_options({**BASE, **secret}, Use.BATCH_READ))
    assert "s3cret" not in repr(write_options({**SERVERS, **secret}, Use.BATCH_WRITE))


@pytest.mark.parametrize("quote", ['"', "'"])
def test_java_escapes_in_a_jaas_text_are_undone(quote: str) -> None:
    text = rf"x.PlainLoginModule required username={quote}a{quote} password={quote}p\"w\'\\n\tx{quote};"
    found = client_settings({**SERVERS, **SASL, "kafka.sasl.jaas.config": text}, ConsumerConfig, "reading")
    assert found["sasl_plain_password"] == "p\"w'\\n\tx"


def test_an_empty_topic_is_refused_and_options_of_sparks_writers_pass() -> None:
    assert "topic = ''" in refusal(Use.STREAM_WRITE, {**SERVERS, "topic": ""})
    assert write_options({**SERVERS, "checkpointLocation": "/c"}, Use.STREAM_WRITE).topic is None


PRODUCER_VALUES = {
    "acks": ("0", "1", "-1", "all"),
    "enable_idempotence": ("false", "true"),
    "retries": ("0", "3"),
    "max_in_flight_requests_per_connection": ("6", "5"),
    "compression_type": ("lz4",),
    "partition_failover": ("keyless",),
    "partitioner": ("murmur2",),
}
"""Values that are tried beside each number's and each switch's default."""
NOT_OF_A_STREAM = [
    ("kafka.acks", "0"),
    ("kafka.acks", "1"),
    ("kafka.enable.idempotence", "false"),
    ("kafka.max.in.flight.requests.per.connection", "6"),
    ("kafka.retries", "0"),
]


@pytest.mark.parametrize(("name", "value"), NOT_OF_A_STREAM)
def test_what_rules_out_transactions_is_refused_for_a_stream_and_taken_for_a_batch(name: str, value: str) -> None:
    said = refusal(Use.STREAM_WRITE, {**SERVERS, name: value})
    assert said.startswith(f"{name} = {value} is not possible in writeStream: ")
    assert "one transaction" in said
    assert "Leave the option out" in said
    assert "transactional_id" not in said
    write_options({**SERVERS, name: value}, Use.BATCH_WRITE)


def test_a_producers_setting_that_a_stream_takes_fits_its_transactions() -> None:
    usual = ProducerConfig.of({"bootstrap_servers": "h:9092"})
    given = {field.name: getattr(usual, field.name) for field in fields(usual)}
    tried = {name: (str(value).lower(),) for name, value in given.items() if isinstance(value, int)} | PRODUCER_VALUES
    refused = []
    for name, values in sorted(tried.items()):
        for value in values:
            option = f"kafka.{name.replace('_', '.')}"
            try:
                client = write_options({**SERVERS, option: value}, Use.STREAM_WRITE).client
            except BadInput:
                refused.append((option, value))
            else:
                ProducerConfig.of({"transactional_id": "query-0", **client})
    assert refused == NOT_OF_A_STREAM
