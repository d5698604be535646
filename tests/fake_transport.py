"""A transport without a socket: a test says what comes, and how much is taken of what is sent."""

import os


class FakeTransport:
    """`takes` are the sizes that the next calls take; 0: would block; an exception: raised. When they are used up,
    everything is taken. What it was given as a file is in `files`."""

    def __init__(self):
        self.fd = os.eventfd(0)  # a descriptor that a loop can watch
        self.comes = []  # bytes, or an exception
        self.takes = []
        self.sent = b""
        self.files = []
        self.more = []
        self.closed = False

    def fileno(self):
        return self.fd

    def recv_into(self, target):
        if not self.comes:
            raise BlockingIOError
        data = self.comes.pop(0)
        if isinstance(data, Exception):
            raise data
        size = min(len(data), len(target))
        target[:size] = data[:size]
        if size < len(data):
            self.comes.insert(0, data[size:])
        return size

    def _room(self, size):
        taken = self.takes.pop(0) if self.takes else size
        if isinstance(taken, Exception):
            raise taken
        if taken == 0:
            raise BlockingIOError
        return min(taken, size)

    def send(self, data):
        size = self._room(len(data))
        self.sent += data[:size]
        return size

    def send_pieces(self, pieces, more):
        self.more.append(more)
        return self.send(b"".join(pieces))

    def send_file(self, fd, position, size):
        size = self._room(size)
        self.files.append((position, size))
        data = os.pread(fd, size, position)
        self.sent += data
        return len(data)

    def close(self):
        if not self.closed:
            os.close(self.fd)
        self.closed = True
