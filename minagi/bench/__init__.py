"""What this machine does with minagi, measured: `minagi bench`. One module a subject, each function a dict.

Figures depend on the machine and on what else runs on it, so every one comes with what the machine
multiplied, copied or read in the same run. Nothing here is timed in tests. Recorded figures: bench/results.
"""
