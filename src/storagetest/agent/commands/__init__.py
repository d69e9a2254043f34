"""The agent's commands: one module per command, found by its name. Each has ``run(request, context)``."""
