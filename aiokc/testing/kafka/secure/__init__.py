"""What secures a local Kafka: certificates, tokens, the broker's configuration, users, ACLs and delegation tokens."""
