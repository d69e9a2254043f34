"""Broken rules of portal groups."""

from iscsi_rules import key_set_to, text

text(
    "portal-group-other | RFC 7143 13.8, 13.9 | a login declares a portal group that discovery does not list",
    key_set_to("TargetPortalGroupTag", "999"),
)
