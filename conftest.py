"""What the project's own tests need; the suites need nothing but the plugin."""

pytest_plugins = ["pytester"]
