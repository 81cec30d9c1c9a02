"""What Textual has no public name for, in one place: how an app is ended by an exception, in silence."""

from __future__ import annotations

from textual.app import App

TEXTUAL = "8.2.8"  # the version these names were tried with


def end(app: App[None], error: Exception, status: int) -> None:
    """End `app` with an exit status. `error` is kept where Textual's own handling keeps it: its test harness
    raises it."""
    if app._exception is None:
        app._exception = error
        app._exception_event.set()
    app._return_code = status
    app._close_messages_no_wait()
