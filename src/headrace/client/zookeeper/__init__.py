"""A client of ZooKeeper, and of our keeper: one session without IO, and what drives it.

`session` decides everything and does no IO; `blocking` drives it on a thread, for tools and tests, `on_loop` on the
event loop of a broker. It raises `ZooKeeperError`, a ClientError.
"""
