"""What is told of a run while its figures are computed."""

from results.account import Account
from results.window import Window


class Watch:
    """Who is told of a run, while it is computed, what is known long before all is; this one makes nothing of it."""

    def window(self, window: Window | None) -> None:
        """The steady window, or that there is none."""

    def account(self, account: Account | None) -> None:
        """The time account, after the window; None without one."""
