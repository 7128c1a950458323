"""Joins a Ray cluster, if a head answers at its address and both want a token, or neither does."""

import os
import socket
from collections.abc import Iterator
from typing import BinaryIO

from lmsweep.orchestrator.cluster import ray_private
from lmsweep.orchestrator.cluster.ray_session import start_ray
from lmsweep.trials.spec.config import RequestError

PORT_PATIENCE = 5.0
"""Seconds in which the head must answer: Ray itself would try again for minutes."""

DATA, HEADERS, SETTINGS = 0, 1, 4
"""HTTP/2 frame types (RFC 9113, section 6)."""
END_STREAM, END_HEADERS = 1, 4
"""HTTP/2 frame flags."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STATUS_200 = 0x88
"""HPACK's first byte for `:status: 200`, which every gRPC response has."""

FIRST_METHOD = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""Ray's first call of a head."""
_UNAUTHENTICATED = b"\x0bgrpc-status\x02" + b"16"
"""HPACK's bytes of the header that refuses a call without a valid token: each word after its length."""


def connect(address: str) -> None:
    """Join the cluster. Raises RequestError if that fails."""
    import ray

    try:
        host, port = _host_and_port(address)
        sends_token = os.environ.get("RAY_AUTH_MODE") != "disabled"
        if os.environ.get("RAY_USE_TLS", "0") == "0":  # TLS asks for a certificate in place of a token
            asks = wants_token(host, port, patience=PORT_PATIENCE)
            if asks and not sends_token:
                raise ConnectionError("it asks for a token, and RAY_AUTH_MODE is disabled")
            if sends_token and not asks:
                raise RequestError(
                    f"the Ray cluster at {address} asks for no token: who reaches its ports runs code on its nodes. "
                    "Start Ray there with RAY_AUTH_MODE=token; if nobody else reaches them, set RAY_AUTH_MODE=disabled "
                    "here"
                )
        start_ray(address, cpus=0, gpus=0)
    except RequestError:
        raise
    except (OSError, RuntimeError, ValueError, ray.exceptions.AuthenticationError) as error:
        raise RequestError(
            f"cannot join a Ray cluster at {address}: {line_of(error, 0)}. Check that it runs, with this "
            "machine's Ray, Python and token (RAY_AUTH_TOKEN, ~/.ray/auth_token). On the head node, use --address auto"
        ) from error


def _host_and_port(address: str) -> tuple[str, int]:
    """Return where the head listens. Raises RequestError for a malformed address, and what `head_address` raises."""
    address = ray_private.head_address(address)
    if address.startswith("ray://"):
        raise RequestError(f"{address}: Ray Client is not supported; run lmsweep on the head node with --address auto")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RequestError(f"{address!r} is no address of a Ray cluster; write HOST:PORT, or auto on the head node")
    return host, int(port)


def wants_token(host: str, port: int, *, patience: float, method: str = FIRST_METHOD) -> bool:
    """Return whether a Ray head, or another server of Ray that has this method, refuses a call of it without a token.
    Raises OSError if nothing listens there, nothing answers within `patience` seconds, or the answer is not gRPC."""
    # Headers of a call without arguments, in HPACK: a byte for the name, then the value after its length.
    call = b"\x83" + b"\x86" + b"\x44" + bytes([len(method)]) + method.encode()  # POST, http (both one byte), path
    call += b"\x41\x07lmsweep" + b"\x5f\x10application/grpc" + b"\x40\x02te\x08trailers"  # authority, content type, te
    with socket.create_connection((host, port), timeout=patience) as connection:
        connection.sendall(_PREFACE + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_HEADERS, 1, call))
        connection.sendall(_frame(DATA, END_STREAM, 1, bytes(5)))  # gRPC's empty message: not compressed, length 0
        for kind, payload in _frames(connection.makefile("rb")):
            if kind == HEADERS:  # the first: a refusal, which has no body, has its gRPC status there; a success has not
                if payload[:1] == bytes([_STATUS_200]):
                    return _UNAUTHENTICATED in payload
                break
    raise OSError("another kind of server listens there")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _frames(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while len(head := stream.read(9)) == 9:  # length (3), kind, flags, stream (4)
        yield head[3], stream.read(int.from_bytes(head[:3], "big"))


def line_of(error: BaseException, which: int) -> str:
    """Return one line of an error's message, as part of a sentence."""
    return str(error).strip().split("\n")[which].rstrip(".")
