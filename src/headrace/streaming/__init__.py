"""Spark behind the log: the one package that imports pyspark, and it does so inside functions only.

`import headrace` and `headrace --help` need no Spark. A broker is reached over the wire, never by import.
"""
