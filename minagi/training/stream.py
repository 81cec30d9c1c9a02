"""Opening a stream on a mix of corpora, in the order in which it can fail in words."""

from __future__ import annotations

import contextlib

from minagi.config import with_values
from minagi.text.mix import Mix
from minagi.training.ours import ours_of
from minagi.training.session import open_engine, settled
from minagi.training.start import Start
from minagi.training.stream_request import StreamRequest
from minagi.training.streamer import Streamer
from minagi.weights import Store


def open_stream(request: StreamRequest, mix: Mix) -> Streamer:
    """Weights, machine, model, streamer. Raises MinagiError in words; the mix is closed as well then."""
    with contextlib.ExitStack() as opened:
        opened.callback(mix.close)
        store = Store.open(request.out, write=True, role="stream")
        opened.callback(store.close)
        fresh = not store.exists
        loaded, profile, why = settled(request.loaded, store, ours_of(store.manifest), fresh, request.device)
        loaded = with_values(loaded, {"training.ngram_renew": False})  # a schedule knows no rounds
        settings = loaded.settings
        seed = settings.data.shuffle_seed if request.seed is None else request.seed
        mix.check(request.lengths(settings).context)
        engine, notices = open_engine(store, settings, request.device, seed)
        start = Start(
            seed=seed,
            dry_run=False,
            fresh=fresh,
            profile=profile,
            notice="\n".join(filter(None, (why, loaded.notice, *notices))),
            log=request.log,
        )
        streamer = Streamer(engine, settings, mix, request, start)
        opened.pop_all()
        return streamer
