"""Reading from very many partitions: what a step costs."""
