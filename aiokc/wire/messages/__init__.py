"""The messages of the APIs that a consumer uses: one class for all versions of each, fields named as in Kafka."""
