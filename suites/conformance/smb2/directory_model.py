"""A model of a tree of directories and files, and of their opens: pure (MS-FSA 2.1.5).

It states what a request has to return, and :class:`TreeModel` changes only where that request succeeds. Data
of files are :mod:`file_model`'s. Times that a server sets itself are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from storagetest.wire.smb2.codes import Access, Action, Disposition, SmbShare, SmbStatus

SHARED = (
    (Access.READ_DATA | Access.EXECUTE, SmbShare.READ),
    (Access.WRITE_DATA | Access.APPEND_DATA, SmbShare.WRITE),
    (Access.DELETE, SmbShare.DELETE),
)
"""Accesses that an open has to share, and with what (MS-FSA 2.1.5.1.2.2)."""


@dataclass(eq=False)
class Node:
    """A directory or a file. ``created`` is CreationTime since it was set; ``streams`` are sizes by name."""

    name: str
    parent: Node | None
    is_directory: bool
    kinds: int = 0
    created: int | None = None
    number: int | None = None
    deleted: bool = False
    children: dict[str, Node] = field(default_factory=dict)
    streams: dict[str, bytes] = field(default_factory=dict)
    opens: list[NodeOpen] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The path below the sequence's directory; that of the directory itself is empty."""
        above = self.parent.path if self.parent else ""
        return f"{above}\\{self.name}" if above else self.name

    def below(self) -> Iterator[Node]:
        """Yield the node and all that is below it."""
        yield self
        for child in self.children.values():
            yield from child.below()


@dataclass(eq=False)
class NodeOpen:
    """An open of a node."""

    node: Node
    access: int
    share: int
    deletes: bool = False
    """Whether it has FILE_DELETE_ON_CLOSE."""

    def shares(self, access: int, share: int) -> bool:
        """Whether it can be open together with an open of ``access`` and ``share``."""
        checked = [(kinds, bit) for kinds, bit in SHARED if self.access & kinds]
        wanted = [(kinds, bit) for kinds, bit in SHARED if access & kinds]
        if not checked or not wanted:
            return True
        return all(share & bit for _, bit in checked) and all(self.share & bit for _, bit in wanted)


class TreeModel:
    """The nodes below ``root``, which is the directory of the sequence."""

    def __init__(self) -> None:
        self.root = Node("", None, is_directory=True)

    def create_status(
        self,
        parent: Node,
        name: str,
        disposition: Disposition,
        access: int,
        share: int,
        *,
        directory: bool | None,
    ) -> SmbStatus:
        """Return the status of a CREATE; ``directory``: which option it has, None for neither (2.1.5.1)."""
        node = parent.children.get(name)
        if node is None:
            absent = disposition == Disposition.OPEN
            return SmbStatus.OBJECT_NAME_NOT_FOUND if absent else SmbStatus.SUCCESS
        if disposition == Disposition.CREATE:
            return SmbStatus.OBJECT_NAME_COLLISION
        if directory is not None and directory != node.is_directory:
            return SmbStatus.NOT_A_DIRECTORY if directory else SmbStatus.FILE_IS_A_DIRECTORY
        if node.deleted:
            return SmbStatus.DELETE_PENDING
        if not all(one.shares(access, share) for one in node.opens):
            return SmbStatus.SHARING_VIOLATION
        return SmbStatus.SUCCESS

    def create(
        self, parent: Node, name: str, access: int, share: int, *, directory: bool, deletes: bool = False
    ) -> tuple[NodeOpen, Action]:
        """Make a CREATE that succeeds; return the open, and what was done."""
        action, node = Action.OPENED, parent.children.get(name)
        if node is None:
            node = parent.children[name] = Node(name, parent, directory)
            action = Action.CREATED
        node.opens.append(NodeOpen(node, access, share, deletes))
        return node.opens[-1], action

    def close(self, opened: NodeOpen) -> None:
        """Close an open; the last close of a node that is to be deleted deletes it (MS-FSA 2.1.5.5)."""
        node = opened.node
        node.opens.remove(opened)
        node.deleted = node.deleted or (opened.deletes and not node.children)
        if node.deleted and not node.opens and node.parent:
            del node.parent.children[node.name]

    def mark_status(self, opened: NodeOpen, *, pending: bool) -> SmbStatus:
        """Return the status of FileDispositionInformation (MS-FSA 2.1.5.15.3)."""
        if not opened.access & Access.DELETE:
            return SmbStatus.ACCESS_DENIED
        if pending and opened.node.children:
            return SmbStatus.DIRECTORY_NOT_EMPTY
        return SmbStatus.SUCCESS

    def rename_status(self, opened: NodeOpen, parent: Node, name: str, *, replace: bool) -> SmbStatus:
        """Return the status of a rename to a place that is not its own (MS-FSA 2.1.5.15.11)."""
        if not opened.access & Access.DELETE:
            return SmbStatus.ACCESS_DENIED
        target = parent.children.get(name)
        if target is None:
            return SmbStatus.SUCCESS
        if not replace:
            return SmbStatus.OBJECT_NAME_COLLISION
        return SmbStatus.ACCESS_DENIED if target.is_directory or target.opens else SmbStatus.SUCCESS

    @staticmethod
    def rename(node: Node, parent: Node, name: str) -> None:
        """Move a node, with all that is below it."""
        assert node.parent is not None
        del node.parent.children[node.name]
        node.parent, node.name = parent, name
        parent.children[name] = node
