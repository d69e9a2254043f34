"""Two clients of one target: the fixtures for cases about what each sees of the other.

``needs("two_clients")`` asks for a target with two clients that are two machines. Then ``hands`` are ``(a,
b)``: a :class:`~storagetest.runner.hands.Hand` on each, in one directory of the case's own that both see;
it is gone when the case ends. ``wire`` proves that something crossed it, or else the case is INVALID:

    with wire(a, "lock"):
        a.lock(fd, F_WRLCK)

Rules:

1. Both clients attach the same variant. The directory is in the first one's own.
2. Two names for one machine (one kernel: its boot id) are one client: a skip. So is a target with one client.
3. A hand lives as long as its variant's cases. One that died, or whose line broke, is replaced for the next
   case.
4. What did not cross the wire says nothing of the target: INVALID, whatever the body found. So a failure
   inside ``wire`` is INVALID too where nothing crossed, and a case claims outside what the target might
   answer by silence. What a client may put off until the target calls for it (data that it writes under a
   lock of Lustre's) is looked for at the end of the case, when the client has written back what it had left.
5. Both machines are taken alone (:mod:`storagetest.plugin.guard`): the counters of a client are the proof.
6. Where a suite overrides ``sides`` by ``sides_of_one_data`` the second client has the same files by another
   protocol (``same_data`` of the target). Which of the two is ``a`` is the suite's to say.
7. ``cut_off(a)`` is a client that falls silent and comes back at the end of the ``with``, by the target's
   ``controls``.
"""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from storagetest.config import Variant
from storagetest.counters.request_counts import RequestKind
from storagetest.errors import ConfigError, HostError
from storagetest.hosts import Host, wait_until
from storagetest.plugin.attaching import attached, hold_to_what_was_asked
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.state import State
from storagetest.protocols.base import Attachment
from storagetest.runner.crossing import Seen, Watch
from storagetest.runner.hands import Hand, hand_on

__all__ = [
    "HandKeeper",
    "OnWire",
    "Side",
    "cut_off",
    "hand_keeper",
    "hands",
    "patience",
    "same_data",
    "same_data_attachment",
    "second_attachment",
    "second_client",
    "sides",
    "sides_of_one_data",
    "wire",
]

_TIDYING = 20.0
"""Seconds after which what cannot be removed is an error."""
_BACK = 180.0
"""Seconds that a client which was cut off may take to be heard: TCP sends ever more seldom meanwhile."""
_WRITE_BACK = 60.0
"""Seconds that a client may take to send what it has kept back."""
_CONTROL = 30.0
"""Seconds that a control of the target may take."""


@dataclass(frozen=True, slots=True)
class Side:
    """One client of the case: its hand, and the case's directory as it has it."""

    hand: Hand
    directory: str


class HandKeeper:
    """Starts hands, and starts them anew where one is of no use any more."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[ExitStack, Hand]] = {}

    def hand(self, client: Host) -> Hand:
        """Return the hand on ``client``, with nothing open."""
        kept = self._kept.get(client.name)
        if kept is not None and not kept[1].usable:
            self._drop(client.name)
            kept = None
        if kept is None:
            stack = ExitStack()
            kept = self._kept[client.name] = stack, stack.enter_context(hand_on(client))
        return kept[1]

    def close(self) -> None:
        """End all hands."""
        for name in list(self._kept):
            self._drop(name)

    def _drop(self, name: str) -> None:
        stack, hand = self._kept.pop(name)
        try:
            stack.close()
        except HostError:
            if hand.usable:
                raise


class OnWire:
    """Callable: proves that what its body does makes a client send something to the target.

    ``wire(a, "lock")`` names the hand and what is to be sent: ask, read, write, change, list or lock (see
    :class:`~storagetest.counters.request_counts.RequestKind`).
    """

    def __init__(self, watches: dict[str, Watch]) -> None:
        self._watches = watches
        self._owed: list[tuple[Hand, Seen]] = []

    @contextmanager
    def __call__(self, hand: Hand, sort: str) -> Iterator[None]:
        """Raise :class:`Invalid` at the end where nothing was sent, or nobody can tell."""
        failed: AssertionError | OSError | None = None
        with self._watches[hand.name].over(RequestKind(sort)) as seen:
            try:
                yield
            except (AssertionError, OSError) as error:
                failed = error
        if seen.count is None:
            raise Invalid(
                f"{hand.name}: neither counters nor a capture tell whether a {sort} crossed the wire"
            )
        if seen.count <= 0 and seen.put_off and failed is None:
            self._owed.append((hand, seen))
        elif seen.count <= 0:
            raise _nothing_left(hand, seen, failed)
        if failed is not None:
            raise failed

    def settle(self, failed: Exception | None = None) -> None:
        """Raise :class:`Invalid` where what was put off has not been sent by the end of the case either."""
        owed, self._owed = self._owed, []
        for hand in {id(hand): hand for hand, _ in owed}.values():
            hand.renew()
            hand.call("sync", deadline=_WRITE_BACK)
        for hand, seen in owed:
            self._watches[hand.name].recount(seen)
            if not seen.count:
                raise _nothing_left(hand, seen, failed)

    def lease(self, hand: Hand) -> float | None:
        """Return the lease in seconds that the server gives the hand's client; None where it gives none."""
        return self._watches[hand.name].lease()


def _nothing_left(hand: Hand, seen: Seen, failed: Exception | None) -> Invalid:
    found = f" (it found: {failed})" if failed else ""
    return Invalid(f"{hand.name}: no {seen.sort.value} request left this client, says {seen.how}{found}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a case that a system call of its hands was refused: what the target refuses is its claim.

    Before there is a verdict, what may cross the wire until the end of the case must have done so.
    """
    wire = pyfuncitem.funcargs.get("wire")
    owing = wire if isinstance(wire, OnWire) else None
    try:
        result = yield
    except (AssertionError, OSError) as error:
        if owing:
            owing.settle(error)
        if isinstance(error, AssertionError) or "hands" not in pyfuncitem.fixturenames:
            raise
        raise AssertionError(f"refused: {type(error).__name__}: {error}") from error
    if owing:
        owing.settle()
    return result


@pytest.fixture(scope="session")
def second_client(variant: Variant, st: State) -> Host:
    """Return the other host that attaches the variant."""
    machine = st.second_client(variant)
    if machine is None:
        pytest.skip(f"{variant.id} has one client; this takes two that are two machines")
    return st.host(machine)


@pytest.fixture(scope="session")
def second_attachment(variant: Variant, second_client: Host, st: State) -> Iterator[Attachment]:
    """Yield the variant as the second client has it."""
    with attached(variant, second_client, st) as found:
        yield found


@pytest.fixture(scope="session")
def hand_keeper() -> Iterator[HandKeeper]:
    """Yield what starts hands, and ends them with the session."""
    keeper = HandKeeper()
    yield keeper
    keeper.close()


@pytest.fixture(scope="session")
def same_data(variant: Variant, st: State) -> Variant:
    """Return the variant by which the second client has the same files."""
    other = st.same_data(variant)
    if other is None:
        pytest.skip(f"{variant.id}: no other target of the file serves the same data")
    return other


@pytest.fixture(scope="session")
def same_data_attachment(same_data: Variant, second_client: Host, st: State) -> Iterator[Attachment]:
    """Yield the same files as the second client has them."""
    with attached(same_data, second_client, st) as found:
        yield found


@pytest.fixture
def sides(
    request: pytest.FixtureRequest,
    variant: Variant,
    attachment: Attachment,
    second_attachment: Attachment,
    hand_keeper: HandKeeper,
) -> Iterator[tuple[Side, Side]]:
    """Yield both clients' sides of a directory of the case's own, and remove it at the end."""
    hold_to_what_was_asked(variant, second_attachment)
    with _both(request.node.name, (attachment, second_attachment), hand_keeper) as pair:
        yield pair


@pytest.fixture
def sides_of_one_data(
    request: pytest.FixtureRequest,
    same_data: Variant,
    attachment: Attachment,
    same_data_attachment: Attachment,
    hand_keeper: HandKeeper,
) -> Iterator[tuple[Side, Side]]:
    """Yield two clients' sides of one directory, which the second has by another protocol."""
    hold_to_what_was_asked(same_data, same_data_attachment)
    with _both(request.node.name, (attachment, same_data_attachment), hand_keeper) as pair:
        if not pair[1].hand.exists("."):
            msg = f"{same_data.id} does not have what {same_data_attachment.client.name} is to find there"
            raise ConfigError(f"{msg}: same_data wants targets whose roots are one directory")
        yield pair


@contextmanager
def _both(
    case: str, attachments: tuple[Attachment, Attachment], hand_keeper: HandKeeper
) -> Iterator[tuple[Side, Side]]:
    """Make the case's directory in the first attachment's own, and find it from the root of the second."""
    first, second = (hand_keeper.hand(each.client) for each in attachments)
    if first.boot == second.boot:
        pytest.skip(f"{first.name} and {second.name} are two names for one machine: one kernel, one cache")
    own = posixpath.basename(attachments[0].path)
    name = re.sub(r"[^A-Za-z0-9]+", "-", case)[:80].strip("-")
    places = (f"{attachments[0].path}/{name}", f"{posixpath.dirname(attachments[1].path)}/{own}/{name}")
    with shared_directory((first, second), places):
        yield Side(first, places[0]), Side(second, places[1])


@contextmanager
def shared_directory(hands: tuple[Hand, Hand], places: tuple[str, str]) -> Iterator[None]:
    """Make the directory, have both hands in it, and leave neither it nor anything open behind."""
    first = hands[0]
    for hand in hands:
        hand.renew()
    first.enter("")
    first.mkdir(places[0])
    try:
        for hand, place in zip(hands, places, strict=True):
            hand.enter(place)
        yield
    finally:
        usable = [(hand, place) for hand, place in zip(hands, places, strict=True) if hand.usable]
        for hand, _ in usable:
            hand.renew()
        for hand, place in usable[:1]:
            hand.enter("")
            wait_until(partial(_removed, hand, place), _TIDYING, f"{hand.name} to remove {place}")


def _removed(hand: Hand, place: str) -> bool:
    """Remove; what was unlinked while it was open (NFS's .nfs files) may take a moment to be gone."""
    try:
        hand.remove(place)
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def patience() -> float:
    """Return the seconds after which a client must have seen what another did.

    It may believe its attribute cache for 60 s (nfs(5), acregmax and acdirmax), and one that waits for a lock
    and is not called back asks again about as seldom.
    """
    return 75.0


@pytest.fixture
def hands(sides: tuple[Side, Side]) -> tuple[Hand, Hand]:
    """Return the hands of both clients, in one directory of the case's own."""
    return sides[0].hand, sides[1].hand


@pytest.fixture
def wire(sides: tuple[Side, Side]) -> Callable[[Hand, str], AbstractContextManager[None]]:
    """Return what proves that a request left a client; see :class:`OnWire`."""
    return OnWire({side.hand.name: Watch(side.hand, side.directory) for side in sides})


@pytest.fixture
def cut_off(
    variant: Variant, attachment: Attachment, second_client: Host
) -> Callable[[Hand], AbstractContextManager[None]]:
    """Return what cuts a client off from the target for the body of a ``with``, by the target's controls."""
    hosts = {host.name: host for host in (attachment.client, second_client)}
    controls = variant.controls

    @contextmanager
    def silent(hand: Hand) -> Iterator[None]:
        assert controls.cut_off is not None, "needs('cut_off')"
        assert controls.let_back is not None, "needs('cut_off')"
        host = hosts[hand.name]
        try:
            host.run(controls.cut_off, deadline=_CONTROL)
            yield
        finally:
            host.run(controls.let_back, deadline=_CONTROL)
            wait_until(partial(_answered, hand), _BACK, f"{hand.name} to hear from its target again")

    return silent


def _answered(hand: Hand) -> bool:
    """Look up a name that no cache knows; whether that is answered."""
    (found,) = hand.start(("stat", f"none-{secrets.token_hex(8)}"), deadline=_BACK).results()
    return isinstance(found, FileNotFoundError)
