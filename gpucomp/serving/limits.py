"""What one client may ask of the server. Each is a number that a request cannot pass."""

from __future__ import annotations

from gpucomp.lazy_dataclass import dataclass

RANK = 32  # of a tensor
EXTENT = (1 << 31) - 1  # of one dimension
NAME = 256  # characters of a name or an id
TENSORS = 1024  # inputs, or requested outputs, of a request
HEADER = 64 << 10  # bytes of a request line with its headers
JSON_ELEMENTS = 1 << 20  # of all outputs of an answer that are not binary
JSON_STEP = 1 << 12  # elements that are written as JSON at once: meanwhile no other thread runs
TEXT = 64  # bytes that a text counts as, where it is about the time to convert it
INLINE = 256 << 10  # bytes that are converted at once; more is done by a thread, while others are served


@dataclass(frozen=True)
class Limits:
    """``body`` and ``json`` are bytes, inflated, of a request; ``bodies`` of all requests and answers. Times are in seconds.

    ``queue`` is how many requests of one model wait. ``timeout`` is the time of a request that does not say one, and the most.
    ``head`` is for the headers of a request, ``upload`` for its body, ``stalled`` for a client that does not read its answer,
    ``idle`` for a connection without a request, ``drain`` for what runs when the server is told to end.
    """

    body: int = 64 << 20
    json: int = 16 << 20
    bodies: int = 1 << 30
    connections: int = 1024
    queue: int = 128
    timeout: float = 60.0
    head: float = 10.0
    upload: float = 60.0
    stalled: float = 30.0
    idle: int = 30
    drain: int = 30
