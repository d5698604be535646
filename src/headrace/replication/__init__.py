"""What several brokers agree on: the image of the cluster, and where replicas are placed. No IO."""
