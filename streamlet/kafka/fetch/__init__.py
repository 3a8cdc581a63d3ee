"""Decisions about fetched data that Consumer and KafkaSpout share. Pure."""
