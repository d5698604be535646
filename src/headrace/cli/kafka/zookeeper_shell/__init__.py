"""`zookeeper-shell.sh host:port [command]`: ZooKeeper's own shell, with its commands, output and exit codes."""
