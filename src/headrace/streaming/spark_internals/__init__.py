"""Everything of Spark's and Delta's that is not their public API, and what is done where it is missing.

No other module may name it: a new Spark changes these modules and nothing else. `table` lists every function here with
the versions that it was checked against; `tests/streaming/test_spark_internals.py` calls each on a real session.
"""
