"""Groups that rebalance: ``python -m benchmarks.rebalance``."""
