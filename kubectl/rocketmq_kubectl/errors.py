"""Errors of commands with their exit codes. `__main__` prints each as one line on standard error."""

from rocketmq_runtime.terminal import ToolError


class PluginError(ToolError):
    """A command failed; the text says what to do."""


class NotFoundError(PluginError):
    """No resource, pod or replica of that name."""


class ForbiddenError(PluginError):
    """The user has no right to it; docs/kubectl-rocketmq.md lists what each command needs."""


class CommandRefusedError(PluginError):
    """The API server, a controller, a sidecar or this plugin refuses the command in the current state."""


class NotConfirmedError(PluginError):
    """The user did not confirm, or there was no terminal to ask."""


class WrongUsageError(PluginError):
    """Invalid arguments; nothing was sent."""

    exit_code = 2


class UnreachableError(PluginError):
    """The API server, the controllers or a sidecar did not answer in time. A change may have taken effect."""

    exit_code = 3


class TimedOutError(PluginError):
    """The change was stored, but took no effect within --timeout."""

    exit_code = 4
