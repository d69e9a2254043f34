"""The random sequences of block commands: what they deal out, and what they find."""

import pytest

from storagetest.wire.block_sequence import AGAIN, SIZES, BlockSequence

BLOCKS, SIZE = 256, 16


def sequence(seed: int, data: bytearray) -> BlockSequence:
    made = BlockSequence(
        BLOCKS, SIZE, seed, lambda first, count: bytes(data[first * SIZE : (first + count) * SIZE])
    )
    made.wrote(0, bytes(data))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_each_shape_is_dealt_before_one_comes_again(seed: int) -> None:
    made = sequence(seed, bytearray(BLOCKS * SIZE))
    dealt = [made.deal("shapes", "abcdefg") for _ in range(21)]
    assert [sorted(dealt[at : at + 7]) for at in (0, 7, 14)] == [list("abcdefg")] * 3


@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_every_size_are_dealt_whatever_the_seed(seed: int) -> None:
    made = sequence(seed, bytearray(BLOCKS * SIZE))
    found = {made.range("write", BLOCKS)[1] for _ in SIZES}
    assert found >= set(SIZES) - {AGAIN}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("odd", [True, False])
def test_a_range_lies_within_the_blocks_and_begins_as_asked(seed: int, odd: bool) -> None:
    made = sequence(seed, bytearray(BLOCKS * SIZE))
    for most in (1, 8, BLOCKS, 10 * BLOCKS):
        first, count = made.range("zeroes", most, sizes=(1, 129, 10 * BLOCKS), odd=odd)
        assert first % 2 == odd
        assert 0 < count <= most
        assert first + count <= BLOCKS


def test_purposes_have_decks_of_their_own() -> None:
    made = sequence(1, bytearray(BLOCKS * SIZE))
    for _ in range(5):
        assert {made.deal("one", (1, 2)), made.deal("one", (1, 2))} == {1, 2}
        made.deal("other", (1, 2, 3))


def test_a_neighbour_that_changed_is_found_and_named() -> None:
    data = bytearray(b"".join(number.to_bytes(SIZE, "big") for number in range(1, BLOCKS + 1)))
    made = sequence(1, data)

    def writes(one: BlockSequence) -> None:
        first, count = one.near(10, 2)
        one.say("a write of 2 blocks at block 10")
        new = bytes(range(1, 2 * SIZE + 1))
        data[first * SIZE : (first + count + 1) * SIZE] = new + bytes(SIZE)  # one block too many
        one.wrote(first, new)

    with pytest.raises(AssertionError, match=r"block 12, after a write of 2 blocks at block 10") as failure:
        made.run([writes], 1)
    assert "zeroes in place of their data" in str(failure.value)


def test_blocks_that_show_nothing_are_zeroes_or_unknown() -> None:
    made = sequence(1, bytearray(b"\1" * BLOCKS * SIZE))
    assert made.shows(0, BLOCKS)
    made.forgot(3, 1)
    assert not made.shows(3, 1)
    made.wrote(3, bytes(SIZE))
    assert not made.shows(2, 2)
    assert made.shows(4, 4)
