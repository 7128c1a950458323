"""Checks whether a port speaks gRPC, as a Ray head does, and wants a token. Ray itself would retry for minutes."""

import socket
from collections.abc import Iterator
from typing import BinaryIO

DATA, HEADERS, SETTINGS = 0, 1, 4
"""HTTP/2 frame types (RFC 9113, section 6)."""
END_STREAM, END_HEADERS = 1, 4
"""HTTP/2 frame flags."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STATUS_200 = 0x88
"""HPACK's first byte for `:status: 200`, which every gRPC response has."""

FIRST_METHOD = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""Ray's first call of a head."""
_UNAUTHENTICATED = b"\x0bgrpc-status\x0216"
"""HPACK's bytes of the header that refuses a call without a valid token."""


def wants_token(host: str, port: int, *, patience: float, method: str = FIRST_METHOD) -> bool:
    """Return whether a Ray head, or what else of Ray has this method, refuses a call of it without a token.

    Raises OSError if nothing listens there, nothing answers within `patience` seconds, or the answer is not gRPC.
    """
    # A call without arguments: POST, http, path, authority, content type, te.
    call = bytes([0x83, 0x86, 0x44, len(method)]) + method.encode()
    call += b"\x41\x07lmsweep\x5f\x10application/grpc\x40\x02te\x08trailers"
    with socket.create_connection((host, port), timeout=patience) as connection:
        connection.sendall(_PREFACE + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_HEADERS, 1, call))
        connection.sendall(_frame(DATA, END_STREAM, 1, bytes(5)))
        for kind, payload in _frames(connection.makefile("rb")):
            if kind == HEADERS:
                if payload[:1] == bytes([_STATUS_200]):
                    return _UNAUTHENTICATED in payload
                break
    raise OSError("another kind of server listens there")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _frames(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while len(head := stream.read(9)) == 9:
        yield head[3], stream.read(int.from_bytes(head[:3], "big"))
