"""Lets Spark find ``format("aiokc")``: Spark looks for a ``DefaultSource`` in every package named ``pyspark_*``.

If the import of one such package raises, Spark finds none of these formats. So this package never raises: if PySpark
lacks the Data Source API, it has no ``DefaultSource``, and logs why.
"""

import logging

try:
    from spark_source.source import AiokcDataSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("format 'aiokc' is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
