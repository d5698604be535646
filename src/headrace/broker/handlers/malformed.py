"""What Kafka says of a request whose numbers mean nothing to it."""

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was"
    " sent to an incompatible broker. See the broker logs for more details."
)
