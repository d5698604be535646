"""A cluster as its clients see it: the wire client, what it changes, and facts about topics, groups and brokers.

For the tools, the live screens, the page, the collectors and the tests. It reaches brokers over the wire only, raises
`ClientError`. Records are produced and consumed through librdkafka, never through this package.
"""
