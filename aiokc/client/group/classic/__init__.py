"""What only members of the classic protocol do: its requests, and leading a group."""
