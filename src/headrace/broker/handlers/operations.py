"""Which operations a client may do, as a bit mask. There is no authorizer: whoever asks may do everything."""

NOT_ASKED = -(1 << 31)
# Bits are Kafka's AclOperation codes: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
# CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
ON_TOPIC = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
ON_CLUSTER = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
