"""What a client expects of the network: throughput (kbit/s) and latency (ms), from the downloads so far."""

from cctrace.errors import ArgumentError


class Ewma:
    """Two moving averages with half-lives in seconds of download; the lower throughput and the higher latency count.

    Each is corrected for its beginning at zero. A latency counts once a segment, so its half-life is in segments.
    """

    def __init__(self, video, half_lives_s=(3.0, 8.0)):
        self.half_lives_ms = [1000 * h for h in half_lives_s]
        self.half_lives_segments = [h / video.segment_ms for h in self.half_lives_ms]
        self.throughputs = [0.0] * len(self.half_lives_ms)
        self.latencies = [0.0] * len(self.half_lives_ms)
        self.download_ms, self.downloads = 0.0, 0

    def add(self, download_ms, throughput, latency):
        """A download has ended; returns (throughput, latency) from now on."""
        self.download_ms += download_ms
        self.downloads += 1
        rates, waits = [], []
        for k, (ms, segments) in enumerate(zip(self.half_lives_ms, self.half_lives_segments, strict=True)):
            old = pow(0.5, download_ms / ms)
            self.throughputs[k] = old * self.throughputs[k] + (1 - old) * throughput
            rates.append(self.throughputs[k] / (1 - pow(0.5, self.download_ms / ms)))
            old = pow(0.5, 1 / segments)
            self.latencies[k] = old * self.latencies[k] + (1 - old) * latency
            waits.append(self.latencies[k] / (1 - pow(0.5, self.downloads / segments)))
        return min(rates), max(waits)


class Sliding:
    """The means of the last downloads, three by default."""

    def __init__(self, video, last=3):
        self.last = last
        self.throughputs, self.latencies = [], []

    def add(self, download_ms, throughput, latency):
        """A download has ended; returns (throughput, latency) from now on."""
        self.throughputs = [*self.throughputs, throughput][-self.last :]
        self.latencies = [*self.latencies, latency][-self.last :]
        return sum(self.throughputs) / len(self.throughputs), sum(self.latencies) / len(self.latencies)


ESTIMATES = {"ewma": Ewma, "sliding": Sliding}


def estimate(name, video):
    """Return a new estimate by name.

    Raises
    ------
    ArgumentError
        If there is no such estimate.
    """
    if name not in ESTIMATES:
        raise ArgumentError(f"estimate={name!r}: use {' or '.join(ESTIMATES)}")
    return ESTIMATES[name](video)
