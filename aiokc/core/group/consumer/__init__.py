"""The membership of a group by the consumer protocol (KIP-848): its state machine, its one request, what that means."""
