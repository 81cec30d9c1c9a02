"""Shades the theme has no name for. Of its own take $text-warning and not $warning, pale on white."""

MUTED = "$foreground 65%"  # what may be passed over
FAINT = "$foreground 25%"  # rules and empty parts of bars
