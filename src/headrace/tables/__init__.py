"""Delta tables without a JVM: which version of a pipeline's tables is live, reading, history, upkeep.

It needs neither Spark nor a broker, and must never import either.
"""
