"""Types of the application's code that turns objects into bytes and back (org.apache.kafka.common.serialization)."""
