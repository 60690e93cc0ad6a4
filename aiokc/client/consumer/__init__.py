"""The public Consumer, and what it is wired from."""
