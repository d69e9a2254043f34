"""Framing of the direct TCP transport (MS-SMB2 2.1), and decryption and decoding of what is in the frames.

``receive_data`` takes bytes, ``next_event`` returns a :class:`Received` or None if more bytes are needed.
``keyring`` finds the keys of a session by its id; without one, an encrypted message is an error. ``expand``
decompresses a message as it was negotiated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2 import compression, crypto
from storagetest.wire.smb2.message import SmbMessage, decode, split_compound

LONGEST = 0xFFFFFF
"""Most bytes of a frame: its length has 24 bits (2.1)."""

Keyring = Callable[[int], tuple[bytes, int] | None]
"""``keyring(session_id)``: key and cipher of the direction that is read, or None."""


def frame(data: bytes) -> bytes:
    """Return ``data`` with the length in front (2.1)."""
    return len(data).to_bytes(4, "big") + data


@dataclass(frozen=True, slots=True)
class Received:
    """One message; ``position`` in its compound of ``count``, ``encrypted`` with the key of a session."""

    message: SmbMessage
    position: int
    count: int
    encrypted: int | None
    compressed: bool = False


class Frames:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def receive_data(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    @property
    def pending(self) -> bytes:
        """The bytes that are not yet a frame."""
        return self._buffer

    def next_frame(self) -> bytes | None:
        """Return the next frame without its length. Raises RemoteProtocolError if its first byte is not 0."""
        if not self._buffer:
            return None
        if self._buffer[0]:
            raise RemoteProtocolError(
                f"SMB2: a frame begins with {self._buffer[0]:#04x}, not 0 (2.1): {hex_short(self._buffer)}"
            )
        end = 4 + int.from_bytes(self._buffer[1:4], "big")
        if len(self._buffer) < end:
            return None
        data, self._buffer = self._buffer[4:end], self._buffer[end:]
        return data


def _not_negotiated(data: bytes) -> bytes:
    raise RemoteProtocolError(
        f"SMB2: a message is compressed, but no compression was negotiated (3.2.5.1.1.2): {hex_short(data)}"
    )


class Receiver:
    """Decodes one direction of a connection."""

    def __init__(
        self,
        keyring: Keyring = lambda _session: None,
        expand: Callable[[bytes], bytes] = _not_negotiated,
    ) -> None:
        self._frames = Frames()
        self._keyring, self._expand = keyring, expand
        self._events: deque[Received] = deque()

    def receive_data(self, data: bytes) -> None:
        """Add received bytes."""
        self._frames.receive_data(data)

    def next_event(self) -> Received | None:
        """Return the next message, or None. Raises :class:`RemoteProtocolError`."""
        while not self._events:
            data = self._frames.next_frame()
            if data is None:
                return None
            encrypted = None
            if data[:4] == crypto.TRANSFORM_ID:
                encrypted = crypto.transform_session(data)
                found = self._keyring(encrypted)
                if found is None:
                    raise RemoteProtocolError(
                        f"SMB2: encrypted with the key of session {encrypted:#x}, which has none: "
                        f"{hex_short(data)}"
                    )
                data = crypto.decrypt(data, *found)
            compressed = data[:4] == compression.COMPRESSED_ID
            parts = split_compound(self._expand(data) if compressed else data)
            for position, part in enumerate(parts):
                self._events.append(Received(decode(part), position, len(parts), encrypted, compressed))
        return self._events.popleft()
