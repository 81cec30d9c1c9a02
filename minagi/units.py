"""Losses are in nats inside, and in bits where a person reads them."""

import math

LN2 = math.log(2)  # nats in a bit
