"""What the agent can do: one module a command, found by its name. Each has ``run(request, job)``."""
