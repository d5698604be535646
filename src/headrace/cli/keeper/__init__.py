"""`headrace keeper`: starts a keeper, and looks into one, or into an Apache ZooKeeper."""
