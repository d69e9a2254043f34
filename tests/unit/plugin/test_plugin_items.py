"""What is computed once for the items that share their marks."""

import pytest

from storagetest.plugin.items import needs_of, once_for_marks

SUITE = """
import pytest

pytestmark = pytest.mark.needs("filesystem")

@pytest.mark.needs("block")
@pytest.mark.parametrize("n", [1, 2, pytest.param(3, marks=pytest.mark.needs("sessions"))])
def test_it(n):
    pass

def test_other():
    pass
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    collected, _ = pytester.inline_genitems(pytester.makepyfile(SUITE), "-p", "no:storagetest")
    return collected


def test_items_that_share_their_marks_are_asked_once(items: list[pytest.Item]):
    asked = []

    def ask(item: pytest.Item) -> str:
        asked.append(item.name)
        return item.name

    assert [once_for_marks(item, ask) for item in items] == [
        "test_it[1]",
        "test_it[1]",
        "test_it[3]",
        "test_other",
    ]
    assert asked == ["test_it[1]", "test_it[3]", "test_other"]


def test_each_item_has_the_needs_of_its_own_marks(items: list[pytest.Item]):
    both = {"filesystem", "block"}
    assert [needs_of(item) for item in items] == [both, both, both | {"sessions"}, {"filesystem"}]


def test_a_mark_that_is_added_later_counts(items: list[pytest.Item]):
    assert needs_of(items[0]) == {"filesystem", "block"}
    items[0].add_marker(pytest.mark.needs("controls"))
    assert needs_of(items[0]) == {"filesystem", "block", "controls"}
    assert needs_of(items[1]) == {"filesystem", "block"}
