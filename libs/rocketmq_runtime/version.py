"""The one place that holds the distribution's version; hatchling and every --version read it."""

__version__ = "0.1.0.dev0"
