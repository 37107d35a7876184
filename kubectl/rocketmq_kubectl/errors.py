"""What can go wrong with a command, with its exit code. `__main__` prints each as one line on standard error."""

from rocketmq_runtime.terminal import ToolError


class PluginError(ToolError):
    """A command that did not do what was asked; the text says what to do."""


class NotFoundError(PluginError):
    """No resource, pod or replica of that name."""


class ForbiddenError(PluginError):
    """The API server does not let this user do it; docs/kubectl-rocketmq.md lists what each command needs."""


class RefusedError(PluginError):
    """The API server, a controller or a sidecar does not do it as things are."""


class NotConfirmedError(PluginError):
    """The user was asked and did not agree, or nobody could be asked."""


class WrongUsageError(PluginError):
    """Arguments that make no sense together; found before anything was sent."""

    exit_code = 2


class UnreachableError(PluginError):
    """The API server, the controllers or a sidecar did not answer in time. A change may have taken effect."""

    exit_code = 3


class TimedOutError(PluginError):
    """What was asked has been written down, but has not come about within --timeout."""

    exit_code = 4
