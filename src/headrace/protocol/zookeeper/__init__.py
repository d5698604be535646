"""ZooKeeper's wire format without IO and without state: what a keeper and its clients both need."""
