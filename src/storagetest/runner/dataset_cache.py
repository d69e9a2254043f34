"""Remember which data sets have been written on which attachment, so that each is written once."""

from __future__ import annotations

from collections.abc import Callable

from storagetest.protocols.base import Attachment


class PrefillCache:
    """Written data sets, by attachment and key.

    Not by path: the next attachment at the same path starts empty.
    """

    def __init__(self) -> None:
        # The attachment is kept with the keys, so that its id() is not reused.
        self._filled: dict[int, tuple[Attachment, set[str]]] = {}

    def prefill_once(self, attachment: Attachment, dataset: str, fill: Callable[[], None]) -> bool:
        """Call ``fill`` unless ``dataset`` is written; return whether it was called.

        A call that fails is repeated the next time.
        """
        _, keys = self._filled.setdefault(id(attachment), (attachment, set()))
        if dataset in keys:
            return False
        fill()
        keys.add(dataset)
        return True

    def forget(self, attachment: Attachment) -> None:
        """Remove an attachment that is about to be released."""
        self._filled.pop(id(attachment), None)
