"""Shades the theme has no name for. Its own names ($success, $text-warning) are used as they are."""

MUTED = "$foreground 55%"  # what may be passed over
FAINT = "$foreground 25%"  # rules and empty parts of bars
