"""Read targets.yaml into frozen models; every error has file:line:col."""

from storagetest.config.loader import Config, load
from storagetest.config.models import HostConfig, Profile, ThresholdRule, ThresholdText, Variant

__all__ = ["Config", "HostConfig", "Profile", "ThresholdRule", "ThresholdText", "Variant", "load"]
