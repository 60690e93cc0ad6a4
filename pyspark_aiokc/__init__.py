"""Makes Spark find ``format("aiokc")`` by itself: it looks for ``DefaultSource`` in every package ``pyspark_*``.

A package that raises there makes every such format unfindable, also those of others. So this one never does: where
PySpark lacks the Data Source API, it has no ``DefaultSource``, and says why.
"""

import logging

try:
    from spark_source.source import AiokcDataSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("format 'aiokc' is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
