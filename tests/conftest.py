"""What all of the project's own tests share."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# A machine that is busy is no reason for a test to fail.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

sys.path.insert(0, str(Path(__file__).parent / "kits"))  # importlib mode leaves sys.path alone
