"""A worker that misbehaves as it is told: flood, garbage, silent, endless, deaf or crash."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable

FLOOD = 10_000  # events a second


def say(**body: object) -> bytes:
    return json.dumps(body).encode() + b"\n"


def hello() -> bytes:
    return say(type="hello", model="m", experts=4, resident=2, max_rows=3, fresh=False) + say(
        type="phase", phase="running"
    )


def metrics(step: int) -> bytes:
    return say(
        type="metrics", step=step, chars=step * 256, session_chars=step * 256, loss=2.0, loss_smooth=2.1
    )


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def until_stopped(act: Callable[[int], bytes], seconds: float) -> None:
    """Write what `act` makes of a counter, every `seconds`; answer what is asked, leave when told to."""
    count = 0
    while True:
        write(act(count))
        count += 1
        if select.select([0], [], [], seconds)[0]:
            lines = os.read(0, 65_536).splitlines()
            if not lines:
                return
            for line in lines:
                command = json.loads(line)
                write(say(type="ack", id=command["id"], command=command["type"]))
                if command["type"] == "stop":
                    return


def flood(count: int) -> bytes:
    each = FLOOD // 50
    lines = b"".join(metrics(count * each + n) for n in range(each - 20))
    lines += b"".join(say(type="log", text=f"event {count} {n}") for n in range(10))
    pool = {"uids": list(range(64)), "tier": "R" * 64, "life": "." * 64, "use": [0.1] * 64}
    return lines + say(type="pool", **pool) * 5 + say(type="memory", used=count, at=time.time()) * 5


def garbage(count: int) -> bytes:
    return (
        b"\xff\x00\x1b[2J\x1b]0;gotcha\x07 not json\n" * 50
        + b'{"type": "metrics", "step": []}\n'
        + metrics(count)
    )


def main(how: str) -> int:
    if how == "silent":
        signal.pause()
    if how == "crash":
        write(hello() + metrics(1) + b'{"type": "metr')
        os.abort()
    write(hello())
    if how == "endless":  # a line that never ends
        until_stopped(lambda _: b"x" * 200_000, 0.01)
    elif how == "deaf":  # talks, and hears nothing
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for count in range(1_000_000):
            write(metrics(count))
            time.sleep(0.05)
    else:
        until_stopped({"flood": flood, "garbage": garbage}[how], 0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
