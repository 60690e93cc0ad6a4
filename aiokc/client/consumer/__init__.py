"""The public Consumer, the runtime behind it, and the calls that hand out records."""
