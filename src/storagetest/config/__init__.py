"""targets.yaml in, frozen models out; every error says file:line:col."""

from storagetest.config.loader import Config, load
from storagetest.config.models import Machine, Profile, ThresholdRule, ThresholdText, Variant

__all__ = ["Config", "Machine", "Profile", "ThresholdRule", "ThresholdText", "Variant", "load"]
