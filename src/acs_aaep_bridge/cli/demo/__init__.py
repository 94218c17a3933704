"""`demo`: a broker of its own, the real bridge, sample traffic, and what comes of it."""
