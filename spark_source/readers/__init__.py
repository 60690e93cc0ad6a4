"""The readers that Spark calls: one for batch queries, and one for streams of each kind of Spark."""
