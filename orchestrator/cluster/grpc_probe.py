"""Whether a port speaks gRPC, as the head of a Ray cluster does. Ray itself would ask for minutes, a line each time."""

import socket
from collections.abc import Iterator
from typing import BinaryIO

SETTINGS, HEADERS = 4, 1
"""Types of HTTP/2's frames."""
END_STREAM, END_HEADERS = 1, 4

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STATUS_200 = 0x88
"""As HPACK writes `:status: 200` at the beginning of the headers: gRPC has its own status beside it."""


def check_speaks_grpc(host: str, port: int, *, patience: float) -> None:
    """Raises OSError where nobody listens, nobody answers for so many seconds, or somebody else does."""
    # A call of a method that there is not: POST, http, path, authority, content type, te.
    call = bytes([0x83, 0x86]) + b"\x44\x05/none\x41\x07lmsweep\x5f\x10application/grpc\x40\x02te\x08trailers"
    with socket.create_connection((host, port), timeout=patience) as connection:
        connection.sendall(_PREFACE + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_STREAM | END_HEADERS, 1, call))
        for kind, payload in _frames(connection.makefile("rb")):
            if kind == HEADERS:
                if payload[:1] == bytes([_STATUS_200]):
                    return
                break
    raise OSError("something else listens there")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _frames(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The type and the content of every frame that comes, to the end; of what is no HTTP/2 there is none."""
    while len(head := stream.read(9)) == 9:
        yield head[3], stream.read(int.from_bytes(head[:3], "big"))
