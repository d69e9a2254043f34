"""Authentication by CHAP (RFC 7143 12.1.3, 9.2.1; RFC 1994), for a target with `chap`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from storagetest.wire.iscsi.chap import Challenge, challenge_of, hexadecimal, response
from storagetest.wire.iscsi.codes import LoginStatus, Stage
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import REJECT, binary, format_text, parse_text
from storagetest.wire.iscsi.login import Credentials
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 12.1.3", level="MUST")]


@pytest.fixture
def known(portal) -> Credentials:
    """Return the target's credentials; skip if it has none."""
    if portal.credentials is None:
        pytest.skip("the target has no `chap`")
    return portal.credentials


class Step:
    """One login by hand, in the security stage."""

    def __init__(self, connection: Initiator, iqn: str, *, tsih: int = 0) -> None:
        self.connection = connection
        self._iqn = iqn
        self._template = LoginRequest(itt=0, isid=b"\x80chap!", tsih=tsih, csg=0, nsg=1, transit=False)

    def send(self, *pairs: tuple[str, str], transit: bool = False, **fields: Stage) -> LoginResponse | None:
        """Send keys, with other ``fields`` of the request; return the response, or None on a close."""
        self.connection.send(replace(self._template, transit=transit, data=format_text(pairs), **fields))  # type: ignore[arg-type]
        answer = self.connection.receive()
        assert answer is None or isinstance(answer, LoginResponse), answer.summary()
        return answer

    def names(self, method: str = "CHAP") -> LoginResponse | None:
        """Send the initiator's name and the offered methods."""
        return self.send(
            ("InitiatorName", self.connection.name),
            ("SessionType", "Normal"),
            ("TargetName", self._iqn),
            ("AuthMethod", method),
        )

    def challenge(self, algorithms: str = "5") -> Challenge:
        """Run the login up to the target's challenge, and return it."""
        first = self.names()
        assert first is not None
        assert dict(parse_text(first.data)).get("AuthMethod") == "CHAP"
        second = self.send(("CHAP_A", algorithms))
        assert second is not None
        return challenge_of(parse_text(second.data))


@pytest.fixture
def step(known, connection, portal) -> Step:  # noqa: ARG001  # skips without credentials
    """Return a login by hand."""
    return Step(connection, portal.iqn)


def refused(answer: LoginResponse | None, *, only: Iterable[int] = ()) -> None:
    """Assert that the login was refused, or the connection closed."""
    if answer is None:
        return
    assert answer.status >> 8 == 2, f"status {answer.status:04x}, T={answer.transit}"
    expected = list(only)
    assert not expected or answer.status in expected, f"status {answer.status:04x}"


FAILED = LoginStatus.AUTHENTICATION_FAILED
"""12.1.3: the target MUST answer with a Login reject with this status."""


@pytest.mark.case("ISC-CHAP-01", kills=("chap-refused",))
@pytest.mark.usefixtures("known")
def test_the_right_secret_logs_in(session):
    session.ping()


@pytest.mark.case("ISC-CHAP-02", section="RFC 7143 12.1.3, 11.13.5", kills=("chap-not-checked",))
def test_a_wrong_secret_is_refused_as_authentication_failure(known, connections):
    wrong = replace(known, secret=b"certainly-not-the-secret", target_secret=b"")
    refusal = connections.refused(credentials=wrong)
    assert isinstance(refusal, LoginRefused), str(refusal)
    assert refusal.status == FAILED, str(refusal)


@pytest.mark.case("ISC-CHAP-03", section="RFC 7143 12.1.3, 11.13.5", kills=("chap-not-checked",))
def test_an_unknown_name_is_refused_as_authentication_failure(known, connections):
    wrong = replace(known, name="unknown-name", target_secret=b"")
    refusal = connections.refused(credentials=wrong)
    assert isinstance(refusal, LoginRefused), str(refusal)
    assert refusal.status == FAILED, str(refusal)


@pytest.mark.parametrize("change", [
    pytest.param(lambda name: f"{name}x", id="longer", marks=pytest.mark.case("ISC-CHAP-NAME-LONGER")),
    pytest.param(lambda name: name[:-1], id="shorter", marks=pytest.mark.case("ISC-CHAP-NAME-SHORTER")),
    pytest.param(lambda name: f"x{name}", id="other", marks=pytest.mark.case("ISC-CHAP-NAME-OTHER")),
    pytest.param(lambda name: f"0x{name}", id="hexadecimal", marks=pytest.mark.case(
        "ISC-CHAP-NAME-HEX", kills=("chap-name-without-prefix",))),
    pytest.param(lambda name: f"0b{name}", id="base64", marks=pytest.mark.case(
        "ISC-CHAP-NAME-BASE64", kills=(), no_mutant_reason="LIO breaks this rule itself")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 12.1.3, 11.13.5", kills=("chap-name-in-part",), builds_on=("ISC-CHAP-03",)
)
def test_the_right_secret_with_part_of_the_name_is_refused(known, connections, change):
    """The name is a text that is compared whole, whatever it begins with."""
    wrong = replace(known, name=change(known.name), target_secret=b"")
    refusal = connections.refused(credentials=wrong)
    assert isinstance(refusal, LoginRefused), str(refusal)
    assert refusal.status == FAILED, f"the name {wrong.name} with the secret of {known.name}: {refusal}"


@pytest.mark.case("ISC-CHAP-04", section="RFC 7143 6.3.2", kills=("chap-skipped",))
def test_a_login_that_offers_no_authentication_is_refused(step):
    answer = step.names("None")
    if answer is not None and answer.status == 0:  # 6.3.2: Reject if no method of the list is acceptable
        assert dict(parse_text(answer.data)).get("AuthMethod") == REJECT, answer.summary()
        assert not answer.transit
    else:
        refused(answer)


@pytest.mark.case("ISC-CHAP-05", section="RFC 7143 6.3.1, 6.3.2", kills=("chap-skipped",))
@pytest.mark.usefixtures("known")
def test_a_login_that_skips_the_security_stage_is_refused(connections):
    connections.refused(credentials=None)


@pytest.mark.case("ISC-CHAP-06", kills=("chap-same-challenge",))
@pytest.mark.usefixtures("known")
def test_each_login_gets_a_fresh_challenge(connections, portal):
    challenges = set()
    for letter in "abc":
        login = Step(connections.open(letter), portal.iqn)
        challenges.add(login.challenge().challenge)
        login.connection.link.close()  # a target may take one login at a time
    assert len(challenges) == 3


@pytest.mark.case("ISC-CHAP-07", kills=("chap-not-checked",))
def test_an_unknown_algorithm_is_refused(step):
    step.names()
    refused(step.send(("CHAP_A", "99")))


@pytest.mark.case("ISC-CHAP-08", kills=("chap-algorithm",))
def test_the_first_common_algorithm_is_chosen(step):
    assert step.challenge("99,5").algorithm == 5


@pytest.mark.case("ISC-CHAP-09", kills=("chap-not-checked",))
def test_a_response_of_the_wrong_length_is_refused(step, known):
    step.challenge()
    refused(step.send(("CHAP_N", known.name), ("CHAP_R", "0x00"), transit=True))


@pytest.mark.case("ISC-CHAP-10", kills=("chap-not-checked",))
def test_a_response_of_more_than_1024_bytes_is_refused_and_the_target_lives(step, known, connections):
    step.challenge()
    refused(step.send(("CHAP_N", known.name), ("CHAP_R", "0x" + "ab" * 1500), transit=True))
    connections.login("b").ping()


@pytest.mark.case("ISC-CHAP-11", section="RFC 7143 12.1.3, 6.1", kills=("chap-not-checked",))
def test_an_oversize_base64_response_is_refused_and_the_target_lives(step, known, connections):
    step.challenge()
    refused(step.send(("CHAP_N", known.name), ("CHAP_R", "0b" + "QUJD" * 1000), transit=True))
    connections.login("b").ping()


@pytest.mark.case("ISC-CHAP-12", section="RFC 7143 12.1.3, 6.1", kills=("chap-refused",))
def test_a_response_in_base64_is_accepted(step, known):
    received = step.challenge()
    digest = response(known.secret, received.identifier, received.challenge, received.algorithm)
    text = "0b" + base64.b64encode(digest).decode()
    answer = step.send(("CHAP_N", known.name), ("CHAP_R", text), transit=True)
    assert answer is not None
    assert answer.status == 0, f"status {answer.status:04x}"


CAPITALS = {"kills": ("chap-capital-refused",), "builds_on": ("ISC-CHAP-01",)}


@pytest.mark.parametrize("written", [
    pytest.param(lambda digest: f"0x{digest.hex().upper()}", id="digits",
                 marks=pytest.mark.case("ISC-CHAP-CAPITAL-DIGITS", **CAPITALS)),
    pytest.param(lambda digest: f"0X{digest.hex()}", id="prefix",
                 marks=pytest.mark.case("ISC-CHAP-CAPITAL-PREFIX", **CAPITALS)),
    pytest.param(lambda digest: f"0X{digest.hex().upper()}", id="both",
                 marks=pytest.mark.case("ISC-CHAP-CAPITAL-BOTH", **CAPITALS)),
    pytest.param(lambda digest: f"0B{base64.b64encode(digest).decode()}", id="base64",
                 marks=pytest.mark.case("ISC-CHAP-CAPITAL-BASE64", **CAPITALS)),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.1, 12.1.3", level="MUST")
def test_a_response_in_capital_letters_is_accepted(step, known, written):
    """A binary value begins with 0x, 0X, 0b or 0B; hexadecimal digits are small letters or capital ones."""
    received = step.challenge()
    digest = response(known.secret, received.identifier, received.challenge, received.algorithm)
    text = written(digest)
    answer = step.send(("CHAP_N", known.name), ("CHAP_R", text), transit=True)
    assert answer is not None, f"closed after the right CHAP_R, written as {text[:8]}..."
    assert answer.status == 0, f"status {answer.status:04x} for the right CHAP_R, written as {text[:8]}..."


@pytest.mark.case("ISC-CHAP-13", kills=("chap-not-checked",))
def test_a_response_before_any_challenge_is_refused(step, known):
    step.names()
    refused(step.send(("CHAP_N", known.name), ("CHAP_R", "0x" + "00" * 16), transit=True))


@pytest.mark.case("ISC-CHAP-14", section="RFC 7143 12.1.3, 9.2.1", kills=("chap-reflected",))
def test_the_targets_own_challenge_is_not_answered(step, known):
    received = step.challenge()
    digest = response(known.secret, received.identifier, received.challenge, received.algorithm)
    answer = step.send(
        ("CHAP_N", known.name),
        ("CHAP_R", hexadecimal(digest)),
        ("CHAP_I", str(received.identifier)),
        ("CHAP_C", hexadecimal(received.challenge)),
        transit=True,
    )
    assert answer is None or answer.status or "CHAP_R" not in dict(parse_text(answer.data)), (
        "the target answered its own challenge"
    )


@pytest.mark.case("ISC-CHAP-15", kills=("chap-proof-wrong",))
def test_the_target_authenticates_itself_if_requested(known, connections, portal):
    if not known.target_secret:
        pytest.skip("the target has no `chap.mutual`")
    connections.open().login(target=portal.iqn, credentials=known)


@pytest.mark.case("ISC-CHAP-16", section="RFC 7143 6.3.2", kills=("chap-skipped",))
def test_a_transit_out_of_the_security_stage_before_the_proof_is_refused(step):
    step.challenge()
    answer = step.send(transit=True)
    if answer is not None and answer.status == 0:
        assert not answer.transit, "the target left the security stage without a proof"
        assert answer.csg == Stage.SECURITY
    else:
        refused(answer)


# The target's own proof (12.1.3): "MUST either answer with a Login reject or with CHAP_N, CHAP_R"

REQUESTS = {
    "SHORT": (0, bytes((0x5A,))),
    "255": (255, bytes(range(255))),
    "256": (1, bytes(reversed(range(256)))),
    "LONG": (128, bytes(number % 251 for number in range(1024))),
}
"""CHAP_I and CHAP_C of the initiator: both may be any number of a byte, and of up to 1024 bytes."""


def proof(answer: LoginResponse | None) -> dict[str, str]:
    """Return the keys of a login response that proves the target's secret."""
    assert answer is not None, "the target closed, and proved nothing"
    assert answer.status == 0, f"the login is refused: status {answer.status:04x}"
    return dict(parse_text(answer.data))


def prove(step: Step, known: Credentials, identifier: int | str, challenge: str) -> LoginResponse | None:
    """Answer the target's challenge, and challenge it."""
    received = step.challenge()
    digest = response(known.secret, received.identifier, received.challenge, received.algorithm)
    return step.send(
        ("CHAP_N", known.name),
        ("CHAP_R", hexadecimal(digest)),
        ("CHAP_I", str(identifier)),
        ("CHAP_C", challenge),
        transit=True,
    )


def assert_proves(answer: LoginResponse | None, challenge: str, at: int, known: Credentials) -> None:
    """Assert that ``answer`` has the target's name, and the right response to ``challenge``."""
    keys = proof(answer)
    asked = binary(challenge)
    assert asked is not None
    assert keys.get("CHAP_N"), f"the target proves no name: {sorted(keys)}"
    expected = response(known.target_secret, at, asked)
    assert binary(keys.get("CHAP_R", "")) == expected, (
        f"the target's CHAP_R is not the response to CHAP_I={at} and a CHAP_C of {len(asked)} bytes"
    )


@pytest.fixture
def mutual(known) -> Credentials:
    """Return the target's credentials with its own secret; skip if it has none."""
    if not known.target_secret:
        pytest.skip("the target has no `chap.mutual`")
    return known


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"ISC-CHAP-PROOF-{form}", kills=kills))
    for form, kills in (("SHORT", ("chap-proof-wrong",)), ("255", ("chap-proof-signed-identifier",)),
                        ("256", ("chap-proof-of-255",)), ("LONG", ("chap-proof-of-255",)))
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-CHAP-15",))
def test_the_target_proves_its_secret_for_any_challenge(step, mutual, form):
    identifier, challenge = REQUESTS[form]
    text = hexadecimal(challenge)
    assert_proves(prove(step, mutual, identifier, text), text, identifier, mutual)


@pytest.mark.case(
    "ISC-CHAP-PROOF-BASE64",
    section="RFC 7143 12.1.3, 6.1",
    kills=("chap-proof-of-hexadecimal",),
    builds_on=("ISC-CHAP-15",),
)
def test_the_target_proves_its_secret_for_a_challenge_in_base64(step, mutual):
    text = "0b" + base64.b64encode(bytes(range(32))).decode()
    assert_proves(prove(step, mutual, 7, text), text, 7, mutual)


@pytest.mark.parametrize("form", [
    pytest.param("base64", marks=pytest.mark.case("ISC-CHAP-PROOF-EACH-BASE64")),
    pytest.param("hexadecimal", marks=pytest.mark.case("ISC-CHAP-PROOF-EACH-HEX")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 12.1.3, 6.1", kills=("chap-proof-last-bits",), builds_on=("ISC-CHAP-PROOF-BASE64",)
)
def test_each_of_many_proofs_is_right_to_its_last_bit(connections, portal, mutual, form):
    """A target may write its proof as the initiator writes its own values. Eight logins: any last bits.

    The challenges are of any length: base64 ends with two, one or no characters of padding.
    """
    for identifier in range(8):
        asked = bytes((number * 37 + identifier) % 256 for number in range(30 + identifier))
        text = "0b" + base64.b64encode(asked).decode() if form == "base64" else hexadecimal(asked)
        step = Step(connections.open(f"p{identifier}"), portal.iqn)
        assert_proves(prove(step, mutual, identifier, text), text, identifier, mutual)
        step.connection.link.close()  # a target may take one login at a time


@pytest.mark.case(
    "ISC-CHAP-PROOF-HEX",
    section="RFC 7143 12.1.3, 6.1",
    kills=("chap-identifier-of-decimal",),
    builds_on=("ISC-CHAP-15",),
)
def test_the_identifier_of_the_initiator_may_be_hexadecimal(step, mutual):
    text = hexadecimal(bytes(range(16)))
    assert_proves(prove(step, mutual, "0xC8", text), text, 0xC8, mutual)


@pytest.mark.case(
    "ISC-CHAP-PROOF-WRONG",
    section="RFC 7143 12.1.3, 11.13.5",
    kills=("chap-mutual-not-checked", "chap-not-checked"),
    builds_on=("ISC-CHAP-02",),
)
def test_a_challenge_of_the_initiator_does_not_replace_its_response(step, known):
    """A wrong CHAP_R is refused, also together with CHAP_I and CHAP_C, and gets no proof."""
    wrong = replace(known, secret=b"certainly-not-the-secret")
    answer = prove(step, wrong, 9, hexadecimal(bytes(range(16))))
    refused(answer, only=(FAILED,))
    assert answer is None or "CHAP_R" not in dict(parse_text(answer.data)), (
        "the target proves its secret to an initiator whose response is wrong"
    )


@pytest.mark.case("ISC-CHAP-PROOF-ASKED", kills=("chap-proof-missing",), builds_on=("ISC-CHAP-01",))
def test_an_initiator_that_asks_for_a_proof_gets_one_or_a_refusal(step, known, observe):
    """A target that has no secret of its own refuses the login: what looks like a success is none."""
    answer = prove(step, known, 9, hexadecimal(bytes(range(16))))
    if answer is None or answer.status:
        observe("refused")
        return
    keys = set(dict(parse_text(answer.data)))
    observe(f"answered with {', '.join(sorted(keys)) or 'no key'}")
    secret = "has a secret of its own" if known.target_secret else "has no secret of its own that we know"
    assert keys >= {"CHAP_N", "CHAP_R"}, (
        f"the login of a target that {secret} goes on without the CHAP_N and CHAP_R that CHAP_C asked for"
    )


@pytest.mark.parametrize("stage", [
    pytest.param(Stage.OPERATIONAL, marks=pytest.mark.case("ISC-CHAP-STAGE-AHEAD")),
    pytest.param(Stage.SECURITY, marks=pytest.mark.case("ISC-CHAP-STAGE-STRAIGHT")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.3, 6.3.2", kills=("chap-skipped",), builds_on=("ISC-CHAP-16",))
def test_no_request_after_the_challenge_reaches_the_full_feature_phase_without_the_proof(step, stage):
    """A request of the next stage, and one of the security stage that asks for the full feature phase."""
    step.challenge()
    answer = step.send(transit=True, csg=stage, nsg=Stage.FULL_FEATURE)
    if answer is not None and answer.status == 0:
        assert not answer.transit, f"CSG {int(stage)}, NSG 3 without a proof: {answer.summary()}"
        assert answer.csg == Stage.SECURITY, f"CSG {int(stage)} without a proof: {answer.summary()}"
    else:
        refused(answer)


@pytest.mark.parametrize("form", [
    pytest.param("SECRET", marks=pytest.mark.case("ISC-REFUSED-SECRET")),
    pytest.param("USER", marks=pytest.mark.case("ISC-REFUSED-USER")),
    pytest.param("ALGORITHM", marks=pytest.mark.case("ISC-REFUSED-ALGORITHM")),
    pytest.param("SESSION", marks=pytest.mark.case("ISC-REFUSED-SESSION")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.13.5, 12.1.3", kills=("chap-refused-open",), builds_on=("ISC-CHAP-02",)
)
def test_a_refusal_of_an_initiator_that_is_not_authenticated_is_followed_by_a_close(
    connection, portal, known, form
):
    """11.13.5: both MUST close if the status is not 0. SESSION: the right proof with a TSIH of no session.

    A target may refuse that TSIH in its first response.
    """
    step = Step(connection, portal.iqn, tsih=0xBEEF if form == "SESSION" else 0)
    answer = step.names()
    if answer is not None and not answer.status:
        answer = step.send(("CHAP_A", "99" if form == "ALGORITHM" else "5"))
    if answer is not None and not answer.status and form != "ALGORITHM":
        asked = challenge_of(parse_text(answer.data))
        secret = b"certainly-not-the-secret" if form == "SECRET" else known.secret
        digest = hexadecimal(response(secret, asked.identifier, asked.challenge, asked.algorithm))
        name = f"{known.name}-other" if form == "USER" else known.name
        answer = step.send(("CHAP_N", name), ("CHAP_R", digest), transit=True)
    if answer is None:
        return
    if not answer.status:
        pytest.skip(f"not refused, which other cases are about: {answer.summary()}")
    after = step.connection.receive(expected=f"a close after the status {answer.status:04x}")
    assert after is None, (
        f"{after.summary()}, after the status {answer.status:04x} for a wrong {form.lower()}"
    )


# What is offered, and what each request has


OFFERED = {"OTHER-FIRST": "99,5,98", "SECOND": "98,5", "SHA": "7,6,5", "LAST": "5,7"}
"""Lists of algorithms: 5 is MD5 (12.1.3); 6, 7 and 8 are of IANA's registry, and later than RFC 7143."""


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"ISC-CHAP-OFFER-{form}")) for form in OFFERED
])  # fmt: skip
@pytest.mark.case(kills=("chap-algorithm-unoffered",), builds_on=("ISC-CHAP-08",))
def test_the_algorithm_is_one_of_those_that_were_offered(step, known, form):
    """With MD5 the right proof logs in, wherever MD5 stands in the list."""
    asked = step.challenge(OFFERED[form])
    offered = {int(number) for number in OFFERED[form].split(",")}
    assert asked.algorithm in offered, f"CHAP_A is {asked.algorithm}; {OFFERED[form]} were offered"
    if asked.algorithm != 5:
        pytest.skip(f"the target takes the algorithm {asked.algorithm}")
    digest = response(known.secret, asked.identifier, asked.challenge, asked.algorithm)
    answer = step.send(("CHAP_N", known.name), ("CHAP_R", hexadecimal(digest)), transit=True)
    assert answer is not None, "closed after the right proof"
    assert answer.status == 0, f"status {answer.status:04x} for the right proof"


INCOMPLETE: dict[str, Callable[[bytes], bytes | None]] = {
    "NO-RESPONSE": lambda _digest: None,
    "LONGER": lambda digest: digest + b"\0",
    "SHORTER": lambda digest: digest[:-1],
    "LAST-BIT": lambda digest: digest[:-1] + bytes((digest[-1] ^ 1,)),
    "EMPTY": lambda digest: digest[:0],
    "NO-NAME": lambda digest: digest,
}
"""What is sent as CHAP_R, from the right one: nothing, nearly that, or that without CHAP_N."""


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"ISC-CHAP-PART-{form}")) for form in INCOMPLETE
])  # fmt: skip
@pytest.mark.case(kills=("chap-not-checked",), builds_on=("ISC-CHAP-02",))
def test_what_is_not_the_whole_proof_is_refused(step, known, form):
    """Neither the login nor its stage goes on; a target may ask for the rest without T."""
    asked = step.challenge()
    digest = response(known.secret, asked.identifier, asked.challenge, asked.algorithm)
    sent = INCOMPLETE[form](digest)
    pairs = [] if form == "NO-NAME" else [("CHAP_N", known.name)]
    pairs += [] if sent is None else [("CHAP_R", hexadecimal(sent))]
    answer = step.send(*pairs, transit=True)
    if answer is not None and answer.status == 0:
        assert not answer.transit, f"{answer.summary()}: the login goes on"
    else:
        refused(answer)


@pytest.mark.case("ISC-CHAP-ORDER", kills=("chap-order-refused",), builds_on=("ISC-CHAP-01",))
def test_the_response_may_stand_before_the_name(step, known):
    """The keys of one request have no order."""
    asked = step.challenge()
    digest = response(known.secret, asked.identifier, asked.challenge, asked.algorithm)
    answer = step.send(("CHAP_R", hexadecimal(digest)), ("CHAP_N", known.name), transit=True)
    assert answer is not None, "closed after the right proof, CHAP_R before CHAP_N"
    assert answer.status == 0, f"status {answer.status:04x} for the right proof, CHAP_R before CHAP_N"


@pytest.mark.parametrize("methods", [
    pytest.param("None,CHAP", marks=pytest.mark.case("ISC-CHAP-METHODS-NONE-FIRST")),
    pytest.param("CHAP,None", marks=pytest.mark.case("ISC-CHAP-METHODS-NONE-LAST")),
    pytest.param("X-org.storagetest.none,CHAP", marks=pytest.mark.case("ISC-CHAP-METHODS-PRIVATE")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.3.2, 13.1", kills=("chap-none-selected",), builds_on=("ISC-CHAP-04",))
def test_none_is_not_selected_from_a_list_that_has_chap(step, methods):
    """A target that requires authentication selects CHAP, or refuses the login."""
    answer = step.names(methods)
    if answer is None or answer.status:
        refused(answer)
        return
    selected = dict(parse_text(answer.data)).get("AuthMethod")
    assert selected == "CHAP", f"AuthMethod={selected} of {methods}; the target requires authentication"
    assert not answer.transit, f"{answer.summary()}: out of the security stage without a proof"
