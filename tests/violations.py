"""What every checker of a history raises."""


class ViolationError(AssertionError):
    """A promise was broken."""
