"""targets.yaml in, frozen models out; every error says file:line:col."""

from storagetest.config.loader import Config, load
from storagetest.config.models import Gate, Machine, Profile, Rule, Variant

__all__ = ["Config", "Gate", "Machine", "Profile", "Rule", "Variant", "load"]
