"""The tools under the names that Kafka's own have, one file each.

Flags, output and exit codes are those of Apache Kafka's tools, for scripts read them. Nothing here may make a
tool slow to start: what a tool does not need it does not import.
"""
