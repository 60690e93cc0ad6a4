"""Avro with the ids of a schema registry (``--value avro -r URL``); the package fastavro decodes it."""
