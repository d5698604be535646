"""Puts this folder on the path of the tests in the folders below it: they share `group_harness`."""
