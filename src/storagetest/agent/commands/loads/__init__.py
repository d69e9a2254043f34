"""Agent commands that put load on a target. Each module has a function ``run(request, context)``."""
