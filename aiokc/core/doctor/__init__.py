"""What the doctor concludes, as pure functions: from addresses, bytes and answers to findings with advice."""
