"""Broken rules of the sizes of properties.

The rules, from the text (NVM Express Base 2.3), before any case:

- 1.4.1.6: a reserved value of a coded field, as of the size of Property Get and Set, is an error (MUST).
- 6.5: what Property Get returns is the value of the property. No sentence demands a status for another size
  than the property's, so a refusal and a success are legal; a success has the property's bytes (SHOULD).
"""

from dataclasses import replace

from nvme_tcp_rules import accepts, fabrics, response, target

from storagetest.wire.nvme.codes import Fctype, Property, StatusCode

GET, SET = fabrics(Fctype.PROPERTY_GET), fabrics(Fctype.PROPERTY_SET)

target(
    "property-size-reserved | Base 1.4.1.6 | reserved sizes of properties are accepted",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: (GET(t, c) or SET(t, c)) and c.cdw10 & 7 > 1),
)
target(
    "property-half-other | Base 6.5 | both halves of CAP are read as the lower one of VS",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=0, result=0x20000)
            if c and GET(t, c) and c.cdw11 in (0, 4) and not c.cdw10 & 7
            else None
        )
    ),
)
target(
    "property-wide-other | Base 6.5 | eight bytes of a property of four have it in the upper four",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=0, result=0x20000 << 32)
            if c and GET(t, c) and c.cdw10 & 7 == 1 and c.cdw11 != Property.CAP
            else None
        )
    ),
)
