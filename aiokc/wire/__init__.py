"""Kafka's wire protocol: bytes to messages and back. Imports only errors and value types; no I/O, no clock."""

from .compile_read import decode, decode_in_slices, decode_prefix
from .compile_write import encode
from .frame_buffers import FrameBuffers
from .frame_parts import Parts
from .frames import (
    FrameAssembler,
    RequestHeader,
    decode_request_header,
    encode_request,
    encode_request_in_parts,
    encode_response,
    read_response_header,
    what_else_speaks,
)
from .prepare import prepare
from .schema import Message, Request, Response, Struct, field

__all__ = [
    "FrameAssembler",
    "FrameBuffers",
    "Message",
    "Parts",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    "decode",
    "decode_in_slices",
    "decode_prefix",
    "decode_request_header",
    "encode",
    "encode_request",
    "encode_request_in_parts",
    "encode_response",
    "field",
    "prepare",
    "read_response_header",
    "what_else_speaks",
]
