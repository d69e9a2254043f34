"""Calls on named pipes: the PDUs as bytes, a list of shares that smbd sent, and what is no list."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import pipes

LIST = bytes.fromhex(
    "0500020310000000200100000200000008010000000000000100000001000000040002000300000008000200030000000c00"
    "020000000000100002001400020000000000180002001c000200030000802000020006000000000000000600000066006900"
    "6c00650073000000010000000000000001000000000000000700000000000000070000007300650061006c00650064000000"
    "0000010000000000000001000000000000000500000000000000050000004900500043002400000000002300000000000000"
    "230000004900500043002000530065007200760069006300650020002800530061006d0062006100200034002e0031003700"
    "2e00310032002d00440065006200690061006e00290000000000030000000000000000000000"
)
"""The response of smbd 4.17 to NetrShareEnum."""


def test_a_bind_offers_the_server_service_in_ndr():
    data = pipes.bind(call=7)
    assert data[:16] == bytes.fromhex("05000b0310000000 48000000 07000000".replace(" ", ""))
    assert UUID(bytes_le=data[32:48]) == pipes.SRVSVC
    assert UUID(bytes_le=data[52:68]) == pipes.NDR
    assert pipes.kind_of(data) == 11


def test_the_shares_of_a_response_have_their_types():
    assert pipes.shares(LIST) == {"files": 0, "sealed": 0, "IPC$": 0x80000003}


@pytest.mark.parametrize("length", range(len(LIST)))
def test_a_response_that_is_cut_is_the_servers_fault(length):
    with pytest.raises(RemoteProtocolError):
        pipes.shares(LIST[:length])


def test_a_response_with_more_behind_it_is_the_servers_fault():
    with pytest.raises(RemoteProtocolError, match="not one PDU"):
        pipes.shares(LIST + b"\0")


def test_another_pdu_is_no_list():
    with pytest.raises(RemoteProtocolError, match="type 11 in place of a response"):
        pipes.shares(pipes.bind())


@given(at=st.integers(24, len(LIST) - 1), value=st.integers(0, 255))
def test_any_changed_list_is_one_or_the_servers_fault(at, value):
    data = LIST[:at] + bytes([value]) + LIST[at + 1 :]
    with suppress(RemoteProtocolError):
        assert isinstance(pipes.shares(data), dict)
