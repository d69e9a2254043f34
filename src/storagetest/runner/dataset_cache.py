"""Which data sets have been filled on which attachment, so that each is filled once."""

from __future__ import annotations

from collections.abc import Callable

from storagetest.protocols.base import Attachment

__all__ = ["PrefillCache"]


class PrefillCache:
    """What is filled, by the attachment itself and the key.

    Not by its path: the next attach at the same place starts empty.
    """

    def __init__(self) -> None:
        # The attachment is kept beside the keys, so that its id() stays its own.
        self._filled: dict[int, tuple[Attachment, set[str]]] = {}

    def prefill_once(self, attachment: Attachment, dataset: str, fill: Callable[[], None]) -> bool:
        """Call ``fill`` unless ``dataset`` is there; whether it was called. A failed one is called again."""
        _, keys = self._filled.setdefault(id(attachment), (attachment, set()))
        if dataset in keys:
            return False
        fill()
        keys.add(dataset)
        return True

    def forget(self, attachment: Attachment) -> None:
        """Forget an attachment that is about to be released."""
        self._filled.pop(id(attachment), None)
