"""Stories of the consumer protocol (KIP-848) that the Cluster and a real Kafka must tell alike."""
