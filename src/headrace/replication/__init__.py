"""What several brokers agree on: the image of the cluster, placement, elections, what is committed. No IO."""
