"""Topics and their logs: records, leader epochs, and the state of producers, transactions and fetch sessions."""
